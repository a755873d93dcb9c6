"""Reads what a daemon tells Prometheus."""

import re
import subprocess
import urllib.request

from daemon import BOUND_S, Daemon, free_port

LINE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?')


def unescaped(value):
    return re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), value)


def with_metrics(**settings):
    """A daemon that shows its metrics at `daemon.metrics`."""
    port = free_port()
    daemon = Daemon({"metrics_listen": f"127.0.0.1:{port}", "metrics_list_interval": "100ms",
                     **settings})
    daemon.metrics = f"127.0.0.1:{port}"
    return daemon


class Scrape:
    """One answer: its text, and its samples by name and labels."""

    def __init__(self, address):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=BOUND_S) as answer:
            self.text = answer.read().decode()
        self.samples = {}
        self.types = {}
        for line in self.text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                self.types[name] = kind
            if not line or line.startswith("#"):
                continue
            name, labels, value = LINE.match(line).groups()
            key = frozenset((k, unescaped(v)) for k, v in LABEL.findall(labels or ""))
            assert (name, key) not in self.samples, f"twice: {line}"
            self.samples[name, key] = float(value)

    def value(self, name, **labels):
        """Of the one sample with exactly these labels; None if there is none."""
        return self.samples.get((name, frozenset(labels.items())))

    def labelled(self, name, label):
        """Values of a label."""
        return {dict(key)[label] for (of, key) in self.samples if of == name and label in dict(key)}

    def sum(self, name, **labels):
        """Of all samples that have these labels, whatever others."""
        wanted = set(labels.items())
        return sum(value for (of, key), value in self.samples.items()
                   if of == name and wanted <= key)


def promtool(*arguments, text=None):
    """What promtool says, for a failure; empty if it is content."""
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True,
                          timeout=BOUND_S, check=False)
    quiet = done.returncode == 0 and not (text and done.stderr)
    return "" if quiet else f"{done.returncode}: {done.stdout}{done.stderr}"
