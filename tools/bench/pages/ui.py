"""A browser that counts what a person would do: clicks, choices, and fields that are typed."""

import re
import time

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

LONGEST_S = 15


class Ui:
    """One person on one dashboard. Begin with `start`, and end with `see`."""

    def __init__(self, chromium="/usr/bin/chromium", chromedriver="/usr/bin/chromedriver"):
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in ("--headless=new", "--no-sandbox", "--window-size=1440,1000",
                         "--disable-background-networking", "--disable-features=BackForwardCache"):
            options.add_argument(argument)
        self.driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        self.clicks = self.fields = 0
        self.began = time.monotonic()

    def start(self, url):
        self.driver.get("about:blank")
        self.clicks = self.fields = 0
        self.began = time.monotonic()
        self.driver.get(url)

    def look(self, path):
        """The first element of an XPath that can be seen, or of the whole of a link's or button's text."""
        if not path.startswith(("/", "(")):
            words = f'[normalize-space()="{path}"]'
            path = f"//a{words} | //button{words}"
        for element in self.driver.find_elements(By.XPATH, path):
            try:
                if element.is_displayed() and element.is_enabled():
                    return element
            except WebDriverException:
                pass
        return None

    def find(self, path):
        until = time.monotonic() + LONGEST_S
        while time.monotonic() < until:
            if element := self.look(path):
                return element
            time.sleep(0.01)
        raise LookupError(f"{path} is not in: {self.text()[:2000]}")

    def click(self, path, until=None):
        """Clicks. A page whose scripts are still starting ignores that: with `until`, an XPath that has
        to follow, it is clicked again, which counts once."""
        self.clicks += 1
        ends = time.monotonic() + LONGEST_S
        again = 0.0
        while time.monotonic() < ends:
            if until and again and self.driver.find_elements(By.XPATH, until):
                return
            element = self.look(path) if time.monotonic() > again else None
            try:
                if element:
                    element.click()
                    again = time.monotonic() + 0.5
                    if not until:
                        return
            except WebDriverException:
                pass
            time.sleep(0.01)
        raise LookupError(f"{path} can't be clicked: {self.text()[:2000]}")

    def type(self, path, text, enter=False):
        """Types into a field, which counts as one; the enter key counts as a click."""
        self.fields += 1
        self.clicks += int(enter)
        self.find(path).send_keys(text + (Keys.ENTER if enter else ""))

    def choose(self, path, words, until=None):
        """Chooses from a list, which counts as one click."""
        self.click(f'{path}/option[normalize-space()="{words}"]', until)

    def confirm(self):
        """Says yes to the browser's own question."""
        self.clicks += 1
        until = time.monotonic() + LONGEST_S
        while time.monotonic() < until:
            try:
                return self.driver.switch_to.alert.accept()
            except WebDriverException:
                time.sleep(0.01)
        raise LookupError("nothing was asked")

    def text(self):
        return self.driver.execute_script("return document.body ? document.body.innerText : ''")

    def see(self, *patterns):
        """Waits until all of the answer can be read, and returns how long everything took."""
        until = time.monotonic() + LONGEST_S
        while time.monotonic() < until:
            try:
                text = self.text()
                if all(re.search(pattern, text, re.DOTALL) for pattern in patterns):
                    return time.monotonic() - self.began
            except WebDriverException:
                pass
            time.sleep(0.01)
        raise LookupError(f"{patterns} is not in: {self.text()[:3000]}")

    def gone(self, path):
        """Waits until something is there no more."""
        until = time.monotonic() + LONGEST_S
        while time.monotonic() < until:
            try:
                if not self.driver.find_elements(By.XPATH, path):
                    return
            except WebDriverException:
                pass
            time.sleep(0.01)
        raise LookupError(f"{path} is still there")

    def close(self):
        self.driver.quit()
