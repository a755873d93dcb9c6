"""What the tests of the page have in common: one daemon and one browser for each class."""

import os
import sys
import unittest
from urllib.parse import quote

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import grpc  # noqa: E402,F401  (scenery puts the stubs' folder on the path)

from browser import Browser  # noqa: E402
from scenery import page_daemon, page_url  # noqa: E402


class PageCase(unittest.TestCase):
    SETTINGS = {}

    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(lambda: None)
        cls.daemon = cls.enterClassContext(page_daemon(**cls.SETTINGS))
        cls.browser = cls.enterClassContext(Browser())
        cls.client = cls.daemon.client()
        cls.url = page_url(cls.daemon)

    def tearDown(self):
        self.assertEqual(self.browser.errors(), [])

    def open(self, path="#/"):
        """The page as it is after a new start, at this view, with the feed's first answer."""
        self.browser.go("about:blank")
        self.browser.go(f"{self.url}/{path}")
        self.browser.wait_text("#age", "live")

    def open_semaphore(self, name):
        self.open(f"#/s/{quote(name, safe='')}")
        self.browser.wait_text("dl.tiles", "of ")
