"""The twelve questions on the dashboards of pg-boss and pgqueuer, each on the shortest way found.

Each function opens the first page, and returns the seconds until the answer could be read. `None`
stands for a page that can't answer; then the text says what is to be done instead.
"""

import subprocess


class Rival:
    def __init__(self, url, database):
        self.url, self.database = url, database

    def prepare(self, question):
        """Nothing: what is asked changes nothing that is asked again, and there are jobs to cancel."""


def rows(database, sql):
    command = ["psql", "-X", "-At", "-d", database, "-c", sql]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[:-1]


class PgBoss(Rival):
    name = "@pg-boss/dashboard"
    JOBS, STATE = "Jobs", '//select[option[.="Failed"]]'
    FILTERED = '//*[contains(text(), "Active filters")]'
    DETAIL = '//*[contains(text(), "Job detail")]'

    def job(self, where):
        return rows(self.database, f"select id from pgboss.job where {where} order by created_on limit 1")[0]

    def state(self, ui, words):
        ui.start(self.url)
        ui.click(self.JOBS)
        ui.choose(self.STATE, words, self.FILTERED)

    def where_is(self, ui):
        self.state(ui, "Failed")
        ui.click("Show advanced filters", '//button[contains(., "Add data filter")]')
        ui.click('//button[contains(., "Add data filter")]', '//input[@aria-label="Data filter key 1"]')
        ui.type('//input[@aria-label="Data filter key 1"]', "order")
        ui.type('//input[@aria-label="Data filter value 1"]', "9123")
        ui.see("2 jobs found")
        ui.click('//tr[td[contains(., "send-mail")]]//a', self.DETAIL)
        return ui.see("550 5.1.2", "9123")

    def what_fails(self, ui):
        """By queue; the errors are on the page of each job."""
        ui.start(self.url)
        ui.click("Queues")
        ui.see("charge-card")
        ui.click("charge-card")
        ui.click('//a[contains(., "View metrics")] | //button[contains(., "View metrics")]', "//canvas")
        return ui.see("Failed")

    def how_long(self, ui):
        ui.start(self.url)
        return ui.see("QUEUED JOBS", "TREND", "resize-image")

    redrive = pause = who_paused = which_worker = waits = None

    def takes_all(self, ui):
        self.state(ui, "Active")
        ui.click('//button[contains(., "Manage view")]', '//*[contains(text(), "Configure columns")]')
        ui.click('//button[contains(., "Add column")]', '(//input[@aria-label="Column source"])[6]')
        source = '(//input[@aria-label="Column source"])[6]'
        ui.find(source).clear()
        ui.type(source, "data.customer")
        ui.click('//button[contains(., "Apply columns")]', '//td[contains(., "northwind")]')
        return ui.see("northwind.*northwind")

    def cron(self, ui):
        last = self.job("name = 'nightly-report'")
        ui.start(self.url)
        ui.click("Schedules")
        ui.see("Every day at 02:00")
        ui.click('//td//a[contains(., "nightly-report")]', '//*[contains(text(), "Next occurrence")]')
        ui.see("(?i)next occurrence")
        ui.click(f'//a[.="{last}"]', self.DETAIL)
        return ui.see("completed", "Nov 30")

    def cancel(self, ui):
        ui.start(self.url)
        ui.click(self.JOBS)
        ui.see("import-catalogue")
        ui.click('//tr[td[contains(., "import-catalogue")]]//a', self.DETAIL)
        ui.click('//button[normalize-space()="Cancel"]', '//button[normalize-space()="Cancel Job"]')
        ui.click('//button[normalize-space()="Cancel Job"]', '//*[normalize-space()="cancelled"]')
        return ui.see("cancelled")

    def value(self, ui):
        id = self.job("name = 'charge-card' and data->>'order' = '5001'")
        self.state(ui, "Completed")
        ui.type('//input[contains(@placeholder, "job ID")]', id, enter=True)
        ui.see("1 jobs? found")
        ui.click(f'//a[.="{id}"]', self.DETAIL)
        return ui.see('"order": 5001', '"charge":')


class Pgqueuer(Rival):
    name = "pgqueuer[web]"

    def job(self, handler):
        sql = f"select id from pgqueuer where entrypoint = '{handler}' and status = 'picked' order by id desc limit 1"
        return rows(self.database, sql)[0]

    where_is = redrive = pause = who_paused = value = waits = None

    def what_fails(self, ui):
        """By entrypoint; the errors are on the page of each job."""
        ui.start(self.url)
        ui.click("Entrypoints")
        return ui.see("(?i)failure rate.*charge-card.*[0-9.]+%")

    def how_long(self, ui):
        """The length; nothing says whether it grows."""
        ui.start(self.url)
        return ui.see("(?i)1,?[0-9]{3}\\s+queued", "resize-image")

    def which_worker(self, ui):
        running = self.job("import-catalogue")
        ui.start(self.url)
        ui.type('//input[@name="id"]', running, enter=True)
        return ui.see("import-catalogue", "(?i)worker\\s+[0-9a-f-]{36}")

    def takes_all(self, ui):
        """Each running job is opened: there are four."""
        ids = rows(self.database, "select id from pgqueuer where entrypoint = 'resize-image' and status = 'picked'")
        ui.start(self.url)
        ui.click("Jobs")
        ui.choose('//select[@name="status"]', "picked")
        for at, id in enumerate(ids):
            ui.click(f'//td/a[.="{id}"]')
            took = ui.see('"customer"')
            if at + 1 < len(ids):
                ui.clicks += 1
                ui.driver.back()
                ui.choose('//select[@name="status"]', "picked")
                ui.clicks -= 1
        return took

    def cron(self, ui):
        """When it ran last and runs next; whether it succeeded is not said."""
        ui.start(self.url)
        ui.click("Schedules")
        return ui.see("nightly-report.*2026-1[0-9-]+ 01:00:00.*2026-1[0-9-]+ 01:00:00")

    def cancel(self, ui):
        id = self.job("import-catalogue")
        ui.start(self.url)
        ui.click("Jobs")
        ui.choose('//select[@name="status"]', "picked")
        ui.click(f'//tr[@id="job-{id}"]//button')
        ui.confirm()
        ui.find("//body")
        ui.gone(f'//tr[@id="job-{id}"]//button')
        return ui.see("(?i)jobs")
