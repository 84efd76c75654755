"""The same twelve questions on wakeq's page."""

import json
import time
import urllib.request


class Wakeq:
    name = "wakeq"
    CANVAS = "/canvases/00000000-0000-0000-0000-000000000000"

    def __init__(self, url, key):
        self.url, self.key = url, key

    def ask(self, path, method="GET", body=None):
        """A request to the API, to set the scene."""
        request = urllib.request.Request(
            f"{self.url}/v1{self.CANVAS}{path}", method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {self.key}", "content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def sign_in(self, ui):
        ui.start(self.url)
        ui.type('//input[@name="key"]', self.key, enter=True)
        ui.see("What is wrong now")

    def prepare(self, question):
        """Makes good what the turn before has changed."""
        if question == "pause":
            self.ask("/handlers/WORKER/send-mail/pause", "DELETE")
        if question in ("redrive", "what_fails"):
            count = "/events/count?state=dead&error_text=was%20declined"
            while self.ask(count)["count"] < 240:
                time.sleep(0.2)

    def start(self, ui):
        ui.start(self.url + self.CANVAS)

    def where_is(self, ui):
        self.start(ui)
        ui.type('//input[@id="find"]', "order:9123", enter=True)
        return ui.see("WORKER/send-mail", "550 5.1.2 no mail server")

    def what_fails(self, ui):
        self.start(ui)
        ui.click("Dead events")
        return ui.see("First died.*was declined.*240.*ago")

    def how_long(self, ui):
        self.start(ui)
        return ui.see("(?i)in the queue", "the queue (grows|shrinks)")

    def redrive(self, ui):
        self.start(ui)
        ui.click("Dead events")
        ui.click('//tr[contains(., "was declined")]//a[contains(., "Redrive all")]')
        ui.click('//button[contains(., "Yes, these 240 events")]')
        return ui.see("240 of 240|It has looked at every event")

    def pause(self, ui):
        self.start(ui)
        ui.click('//table//a[.="WORKER/send-mail"]')
        ui.click("Pause")
        ui.type('//input[@name="reason"]', "the mail server is down")
        ui.click('//button[contains(., "8:00")]')
        ui.click('//form[contains(@action, "/pause")]//button[@type="submit"]')
        return ui.see("WORKER/send-mail is paused until .* 08:00")

    def who_paused(self, ui):
        self.start(ui)
        return ui.see("WORKER/remind-cart.*SHOP-812.*mia")

    def which_worker(self, ui):
        found = self.ask("/events?name=import-catalogue&state=running&limit=1")["items"][0]["id"]
        self.start(ui)
        ui.type('//input[@id="find"]', found, enter=True)
        return ui.see("running", "which is working, on the host")

    def takes_all(self, ui):
        self.start(ui)
        return ui.see("wait for the limit customer:northwind, of which 2 are running")

    def cron(self, ui):
        self.start(ui)
        ui.click("Crons")
        ui.click("nightly-report")
        return ui.see("Next ticks", "completed", "What came of its ticks")

    def cancel(self, ui):
        self.start(ui)
        ui.click('//a[contains(@class, "tile")][contains(., "running")]')
        ui.click('//tr[contains(., "import-catalogue")]//a[.="Cancel"]')
        ui.click("Stop it")
        return ui.see("(?i)is told to stop|was cancelled|cancelled")

    def value(self, ui):
        found = self.ask("/ended-events?name=charge-card&limit=1")["items"][0]["id"]
        self.start(ui)
        ui.type('//input[@id="find"]', found, enter=True)
        ui.click('//a[contains(., "Show the value")]')
        return ui.see('"order":', '"charge":')

    def waits(self, ui):
        self.start(ui)
        return ui.see("Waited until it ran", "Waited in this hour yesterday")
