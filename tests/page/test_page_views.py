"""The views of the page, in a real browser: what they show is what the daemon has."""

import os
import signal
import sys
import unittest
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from browser import DOWN, ENTER, ESCAPE, TAB  # noqa: E402
from page_case import PageCase  # noqa: E402
from scenery import TTL_MS, Reader, Worker, page_url, pb, wait_until  # noqa: E402

NAMES = "return [...document.querySelectorAll('tbody tr:not([hidden]) td.name a')].map((each) => each.textContent)"
# An element, an attribute's end, a right-to-left override, and an emoji of two code units.
HOSTILE = '<img src=x onerror="window.hit=1"></script>\'"><b>&amp;\u202e\u2066abc\U0001f512'


class ListTest(PageCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, limit in (("ci/build", 4), ("ci/deploy", 1), ("db/Orders", 8)):
            cls.client.administer(name, create=pb.CreateSemaphore(limit=limit))
        for _ in range(3):
            cls.client.acquire("ci/build", ttl_ms=TTL_MS)
        cls.client.acquire("ci/deploy", ttl_ms=TTL_MS)
        # Those that wait do so in this order: the oldest waits for ci/deploy.
        cls.waits = [cls.client.acquire_later("ci/deploy")]
        cls.client.wait_for_queue("ci/deploy", 1)
        for _ in range(2):
            cls.waits.append(cls.client.acquire_later("db/Orders", permits=8))
        cls.client.wait_for_queue("db/Orders", 1)
        cls.client.administer("ci/build", pause=pb.PauseSemaphore())

    def row(self, name):
        return self.browser.js(
            "return [...document.querySelectorAll('tbody tr')].find((row) => row.querySelector('a').textContent === "
            "arguments[0])?.innerText.split(/\\t/).map((text) => text.trim())", name)

    def wait_names(self, names):
        self.browser.wait(lambda: self.browser.js(NAMES) == names, f"{names}, in this order")

    def test_shows_sorts_and_searches(self):
        self.open()
        self.wait_names(["ci/deploy", "db/Orders", "ci/build"])
        self.assertEqual(self.row("ci/deploy")[1:3], ["1 / 1", "1"])
        build = self.row("ci/build")
        self.assertEqual((build[1], build[2], build[5]), ("3 / 4", "0", "paused"))
        self.assertRegex(self.row("ci/deploy")[3], r"\d+ s|\d+ min")
        by = {text: f"th:nth-child({at}) button" for at, text in enumerate(("name", "held", "waiting", "oldest"), 1)}
        self.browser.click(by["name"])
        self.wait_names(["ci/build", "ci/deploy", "db/Orders"])
        self.browser.click(by["name"])
        self.wait_names(["db/Orders", "ci/deploy", "ci/build"])
        self.assertEqual(self.browser.js("return document.querySelector('th').getAttribute('aria-sort')"), "descending")
        self.browser.click(by["held"])
        self.wait_names(["db/Orders", "ci/build", "ci/deploy"])
        self.browser.click(by["oldest"])
        self.wait_names(["ci/deploy", "db/Orders", "ci/build"])
        # By the keyboard: "/" goes to the search, which finds any part in any case.
        self.browser.press("/")
        self.browser.type("#search", "oRD", clear=False)
        self.wait_names(["db/Orders"])
        self.assertIn("q=oRD", self.browser.js("return location.hash"))
        self.browser.type("#search", "none of them")
        self.browser.wait_text("p.empty", "No semaphore's name has this in it.")

    def test_all_of_it_by_the_keyboard(self):
        """From the list to an act and back, without a pointer; what has the focus is seen."""
        browser = self.browser
        focused = "return document.activeElement.{}"

        def tab_to(selector):
            for _ in range(40):
                browser.press(TAB)
                self.assertNotEqual(browser.js("return getComputedStyle(document.activeElement).outlineStyle"), "none",
                                    browser.js(focused.format("outerHTML")))
                if browser.js("return document.activeElement.matches(arguments[0])", selector):
                    return
            self.fail(f"no {selector} by the Tab key")
        self.open("#/?sort=name&up=1")
        self.wait_names(["ci/build", "ci/deploy", "db/Orders"])
        browser.press(TAB)
        self.assertEqual(browser.js(focused.format("id")), "skip")
        browser.press(ENTER)
        self.assertEqual(browser.js(focused.format("id")), "main")
        tab_to("#search")
        tab_to("th:first-child button")
        browser.press(ENTER)
        self.wait_names(["db/Orders", "ci/deploy", "ci/build"])
        tab_to("tbody tr:first-child a")
        browser.press(DOWN)
        self.assertEqual(browser.js(focused.format("textContent")), "ci/deploy")
        browser.press(ENTER)
        browser.wait_text("h1", "ci/deploy")
        browser.wait_text("dl.tiles", "of ")
        tab_to("#act-pause")
        browser.press(ENTER)
        browser.find("#confirm")
        browser.press(ENTER)
        browser.wait_text("#toasts", "ci/deploy is paused.")
        self.assertTrue(self.client.describe("ci/deploy").paused)
        self.client.administer("ci/deploy", resume=pb.ResumeSemaphore())

    def test_is_at_most_a_second_old(self):
        self.open()
        self.client.administer("new/one", create=pb.CreateSemaphore(limit=3))
        self.browser.wait(lambda: self.row("new/one"), "the new one is there", 5)
        self.client.administer("new/one", resize=pb.ResizeSemaphore(limit=5))
        self.browser.wait(lambda: self.row("new/one")[1] == "0 / 5", "its new limit is there", 5)
        self.client.administer("new/one", destroy=pb.DestroySemaphore())
        self.browser.wait(lambda: not self.row("new/one"), "it is gone", 5)

    def test_holds_still(self):
        self.open()
        self.browser.click("#still")
        self.browser.wait_text("#age", "held still")
        self.client.administer("still/one", create=pb.CreateSemaphore(limit=3))
        self.browser.click("#still")
        self.browser.wait(lambda: self.row("still/one"), "it goes on")
        self.client.administer("still/one", destroy=pb.DestroySemaphore())


class SemaphoreTest(PageCase):
    def test_slots_queue_and_why(self):
        self.client.administer("one", create=pb.CreateSemaphore(limit=5))
        first = self.client.acquire("one", permits=3, ttl_ms=TTL_MS, holder="first")
        second = self.client.acquire("one", ttl_ms=TTL_MS, holder="second")
        waits = [self.client.acquire_later("one", permits=2, priority=7, holder="large")]
        self.client.wait_for_queue("one", 1)
        waits.append(self.client.acquire_later("one", permits=1, holder="small"))
        self.client.wait_for_queue("one", 2)
        self.open_semaphore("one")
        browser = self.browser
        browser.wait(lambda: len(browser.texts("ol.strip li")) == 3, "two leases and a gap")
        self.assertEqual([text.split()[0] for text in browser.texts("ol.strip li")], ["1–3", "4", "5"])
        self.assertIn("first", browser.js("return document.querySelector('ol.strip button').getAttribute('aria-label')"))
        rows = [text.split("\t") for text in browser.texts("table[aria-label=Leases] tbody tr")]
        self.assertEqual([(row[0], row[1], row[3]) for row in rows],
                         [("1–3", "first", str(first.token)), ("4", "second", str(second.token))])
        queue = [text.split("\t") for text in browser.texts("table[aria-label=Queue] tbody tr")]
        self.assertEqual([(row[0], row[1], row[2], row[3], row[6]) for row in queue],
                         [("1", "large", "2", "7", "full"), ("2", "small", "1", "0", "behind a larger one")])
        browser.wait_text("#why", "large asks for 2 permits, 1 of 5 free. Fewer permits are free than it asks for.")
        self.assertIn("first", browser.text("#why"))
        # A change is seen: the waiter is let in.
        self.client.release(second.lease_id)
        waits[0].result(timeout=20)
        browser.wait_text("#why", "small asks for 1 permit")
        self.assertEqual(browser.texts(".tiles dd")[0], "5 of 5")
        self.client.administer("one", pause=pb.PauseSemaphore())
        browser.wait_text("#why", "The semaphore is paused")
        # And that it goes.
        self.client.administer("one", destroy=pb.DestroySemaphore(policy=pb.DESTROY_POLICY_FORCE, now=True))
        browser.wait_text("p.note-line", "There is no such semaphore now")

    def test_history(self):
        self.client.administer("past", create=pb.CreateSemaphore(limit=4))
        self.client.acquire("past", permits=3, ttl_ms=TTL_MS)
        self.open_semaphore("past")
        self.browser.wait_text("section[aria-label='The last hour']", "now 3 · highest 3")
        label = "return document.querySelector('svg.held').getAttribute('aria-label')"
        self.assertEqual(self.browser.js(label), "Held over the last hour: now 3, highest 3.")
        self.browser.wait(lambda: "H" in self.browser.js("return document.querySelector('svg.held .curve').getAttribute('d')"),
                          "the line is drawn")

    def test_tickets_and_dead_letters(self):
        worker = Worker(self.client, "mail", holder="mailer-1")
        self.addCleanup(worker.close)
        for number in range(3):
            self.client.stub.Enqueue(pb.EnqueueRequest(semaphore="mail", limit=1, payload=b'{"to":%d}' % number,
                                                       content_type="application/json"))
        worker.reject(worker.next(), "no such mailbox")
        worker.next()
        self.open_semaphore("mail")
        browser = self.browser
        table = "table[aria-label=Tickets] tbody tr"
        browser.wait(lambda: len(browser.texts(table)) == 2, "one is assigned and one is queued")
        states = [text.split("\t")[1] for text in browser.texts(table)]
        self.assertEqual(states, ["assigned", "queued"])
        self.assertIn("mailer-1", browser.texts(table)[0])
        browser.js("const s = document.querySelector('select'); s.value = '4'; s.dispatchEvent(new Event('change'))")
        browser.wait(lambda: len(browser.texts(table)) == 1 and "dead letter" in browser.text(table), "the dead letter")
        self.assertIn("no such mailbox", browser.text(table))
        browser.click(f"{table} button.plain")
        browser.wait_text("#payload", '{"to":0}')
        self.assertIn("no such mailbox", browser.text("#reasons"))
        self.assertIn("application/json", browser.text("dialog"))

    def test_hostile_texts_are_text(self):
        self.client.administer("hostile", create=pb.CreateSemaphore(limit=1))
        self.client.acquire("hostile", ttl_ms=TTL_MS, holder=HOSTILE)
        wait = self.client.acquire_later("hostile", holder=HOSTILE)
        self.client.wait_for_queue("hostile", 1)
        payload = (HOSTILE.encode() * 200)[:10_000].decode(errors="ignore").encode()
        self.client.stub.Enqueue(pb.EnqueueRequest(semaphore="hostile/t", limit=1, payload=payload, max_attempts=1))
        worker = Worker(self.client, "hostile/t", holder=HOSTILE)
        self.addCleanup(worker.close)
        worker.reject(worker.next(), HOSTILE)
        browser = self.browser
        self.open_semaphore("hostile")
        browser.wait(lambda: HOSTILE in browser.js("return document.querySelector('#why').textContent"), "the holder's text")
        self.assertEqual(browser.js("return document.querySelector('#main table bdi').textContent"), HOSTILE)
        self.assertEqual(browser.js("return document.querySelectorAll('#main img').length"), 0)
        self.assertEqual(browser.js("return window.hit ?? null"), None)
        # It is isolated: what stands beside it keeps its direction.
        self.assertEqual(browser.js("return getComputedStyle(document.querySelector('#main table bdi')).unicodeBidi"), "isolate")
        browser.click("button.revoke")
        browser.find("dialog h2")
        self.assertIn(HOSTILE, browser.js("return document.querySelector('dialog h2').textContent"))
        self.open_semaphore("hostile/t")
        browser.js("const s = document.querySelector('select'); s.value = '4'; s.dispatchEvent(new Event('change'))")
        browser.click("table[aria-label=Tickets] tbody button.plain")
        shown = browser.wait(lambda: browser.js("return document.querySelector('#payload')?.textContent"), "the payload")
        self.assertEqual(shown, payload.decode())
        self.assertEqual(browser.js("return document.querySelectorAll('#main img, dialog img').length"), 0)
        self.assertIn(HOSTILE, browser.js("return document.querySelector('#reasons').textContent"))
        self.assertEqual(browser.js("return window.hit ?? null"), None)
        wait.cancel()


class OthersTest(PageCase):
    def test_sessions_and_nodes(self):
        requests = iter([pb.SessionRequest(open=pb.OpenSession(client_id="a client", ttl_ms=30_000, holder=HOSTILE))])
        held = uuid.uuid4().hex

        def speak():
            yield from requests
            while not over:
                wait_until(lambda: over, "the end", 60)
        over = []
        self.addCleanup(over.append, held)
        session = Reader(self.client.stub.Session(speak()))
        session.until(lambda message: message.HasField("opened"), "it is opened")
        self.open("#/sessions")
        browser = self.browser
        browser.wait_text("table[aria-label=Nodes]", "this daemon")
        self.assertIn("e2e", browser.text("table[aria-label=Nodes]"))
        browser.wait_text("table[aria-label=Sessions]", "a client")
        row = browser.js("return document.querySelector('table[aria-label=Sessions] tbody tr').textContent")
        self.assertIn(HOSTILE, row)
        self.assertIn("open", row)
        over.append(held)
        session.end()
        browser.wait_text("section[aria-label='Sessions of this daemon']", "away")

    def test_engine(self):
        self.open("#/engine")
        self.browser.wait_text("#main", "vouched for")
        self.browser.wait_text("table[aria-label=Calls]", "Health")
        self.browser.wait_text("table[aria-label=Limits]", "streams_max")
        self.assertIn("sqlite", self.browser.text("section[aria-label=Engine]"))

    def test_a_daemon_that_restarts_under_the_page(self):
        self.client.administer("stays", create=pb.CreateSemaphore(limit=2))
        self.open_semaphore("stays")
        port = int(self.url.rsplit(":", 1)[1])
        self.daemon.settings["http_listen"] = f"127.0.0.1:{port}"
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait_exit()
        self.browser.wait_text("#age", "reconnecting")
        self.daemon.start()
        type(self).client = client = self.daemon.client()
        client.administer("stays", resize=pb.ResizeSemaphore(limit=7))
        self.browser.wait_text("dl.tiles", "of 7")
        self.browser.wait_text("#age", "live")
        self.assertEqual(page_url(self.daemon), self.url)

    def test_a_screen_reader_has_a_name_of_all_that_acts(self):
        self.client.administer("named", create=pb.CreateSemaphore(limit=2))
        self.client.acquire("named", ttl_ms=TTL_MS, holder="one")
        self.client.stub.Enqueue(pb.EnqueueRequest(semaphore="named", payload=b"x"))
        browser = self.browser

        def check(*least):
            nodes = browser.command("Accessibility.getFullAXTree")["nodes"]
            roles = {}
            for node in nodes:
                if not node["ignored"]:
                    roles.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", "").strip())
            for role in ("button", "link", "textbox", "searchbox", "spinbutton", "combobox", "checkbox", "radio", "image", "img",
                         "progressbar", "table", "dialog", "columnheader"):
                # (A column of buttons has none.)
                unnamed = roles.get(role, []).count("") if role != "columnheader" else 0
                self.assertEqual(unnamed, 0, (role, roles.get(role)))
            for role in least:
                self.assertIn(role, roles)
        for path, text in (("#/", "named"), ("#/sessions", "this daemon"), ("#/engine", "vouched for")):
            self.open(path)
            browser.wait_text("#main", text)
            check("button", "link", "main", "navigation", "table")
        self.open_semaphore("named")
        browser.wait(lambda: browser.texts("table[aria-label=Tickets] tbody tr"), "the ticket")
        check("button", "link", "combobox", "heading")
        for act, fields in (("resize", ("spinbutton", "radio")), ("drain", ("spinbutton",)), ("revoke", ("checkbox",))):
            browser.click(f"#act-{act}")
            browser.find("#confirm")
            check("dialog", *fields)
            browser.press(ESCAPE)
            browser.wait(lambda: not browser.js("return document.querySelector('dialog').open"), "Escape closes it")

    def test_it_can_ask_its_own_daemon_alone(self):
        """The policy is in force for whatever is put into the page."""
        self.open()
        self.browser.js("""
            window.refused = [];
            document.addEventListener("securitypolicyviolation", (event) => window.refused.push(event.effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "window.hit = 1";
            document.head.append(script);
            const image = document.createElement("img");
            image.src = "http://127.0.0.1:1/";
            document.body.append(image);
            const style = document.createElement("style");
            document.head.append(style);
            style.textContent = "body { display: none }";
            fetch("http://127.0.0.1:1/").catch(() => {});""")
        self.browser.wait(lambda: {"script-src-elem", "img-src", "style-src-elem", "connect-src"} <=
                          set(self.browser.js("return window.refused")), "each of them is refused")
        self.assertEqual(self.browser.js("return window.hit ?? null"), None)
        self.assertNotEqual(self.browser.js("return getComputedStyle(document.body).display"), "none")
        self.browser.errors()  # The browser has reported each of them.

    def test_in_both_schemes_and_narrow_all_is_to_be_read(self):
        """Text has a contrast of 4.5 at least, and nothing but tables is wider than the window."""
        self.client.administer("narrow/one", create=pb.CreateSemaphore(limit=2))
        self.client.acquire("narrow/one", ttl_ms=TTL_MS)
        self.addCleanup(self.browser.set_scheme, "light")
        self.addCleanup(self.browser.set_size, 1280, 900)
        for scheme in ("light", "dark"):
            self.browser.set_scheme(scheme)
            for width in (1280, 360):
                self.browser.set_size(width, 800)
                self.open_semaphore("narrow/one")
                self.assertEqual(self.browser.js("return document.documentElement.scrollWidth"), width)
                self.assertEqual(self.browser.js(CONTRAST), [], (scheme, width))


# The texts on the page whose contrast with what is behind them is less than 4.5, disabled buttons left out.
CONTRAST = r"""
const parts = (color) => color.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor, p = parts(color);
    if (color.startsWith("rgb") && (p.length === 3 || p[3] === 1)) return p;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility() && !node.disabled &&
    [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())).map((node) => {
  const [a, b] = [light(parts(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
  return [(a + 0.05) / (b + 0.05), node.textContent.trim().slice(0, 40)];
}).filter(([ratio]) => ratio < 4.5);
"""


if __name__ == "__main__":
    unittest.main()
