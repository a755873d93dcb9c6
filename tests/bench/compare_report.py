"""Medians and ratios of what compare.sh measured: a table on stdout, and JSON if asked for."""

import argparse
import collections
import json
import statistics

# A session carries all clients over one stream, so the fairest Redis beside it is one pipelined
# connection; a connection for each client is how Redis is mostly used.
# (what it says, case, figure, peer's case, at least or at most, the aim of this project)
RATIOS = (
    ("cycles, session@256 to etcd@256", "session@256", "per_s", "etcd@256", ">=", 6.0),
    ("cycles, session@256 to redis@256", "session@256", "per_s", "redis@256", ">=", 1.0),
    ("cycles, session@256 to redis pipelined@256", "session@256", "per_s",
     "redis pipelined@256", ">=", 1.0),
    ("cycles, unary@64 to etcd@64", "unary@64", "per_s", "etcd@64", ">=", 3.0),
    ("hand-offs, contended session@64 to etcd", "contended session@64", "per_s",
     "contended etcd@64", ">=", 5.0),
    ("hand-offs, contended unary@64 to etcd", "contended unary@64", "per_s",
     "contended etcd@64", ">=", 5.0),
    ("hand-off p50, contended session@64 to etcd", "contended session@64", "hand_off_p50_us",
     "contended etcd@64", "<=", 0.4),
    ("hand-off p50, contended unary@64 to etcd", "contended unary@64", "hand_off_p50_us",
     "contended etcd@64", "<=", 0.4),
)
# Fairness: a case against itself.
FAIRNESS_MOST = 1.5


def figures_of(line):
    """The few figures of one run that are compared."""
    run = json.loads(line)
    found = {"per_s": run["figures"]["cycles_per_s"], "errors": run["errors"]}
    latency = run["latency_us"]
    for name in ("hand_off", "wait", "cycle"):
        if name in latency:
            found[name + "_p50_us"] = latency[name]["p50"]
            found[name + "_p99_us"] = latency[name]["p99"]
    return found


def medians_of(path):
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    with open(path, encoding="utf-8") as file:
        for line in file:
            case, run = line.rstrip("\n").split("\t", 1)
            for name, value in figures_of(run).items():
                runs[case][name].append(value)
    # Errors are added up: one bad run must not vanish in a median.
    return {case: {name: sum(values) if name == "errors" else statistics.median(values)
                   for name, values in figures.items()}
            for case, figures in runs.items()}


def ratios_of(medians):
    ratios = []
    for label, case, figure, peer, relation, aim in RATIOS:
        mine, theirs = medians[case].get(figure, 0), medians[peer].get(figure, 0)
        ratio = mine / theirs if theirs else float("nan")
        ratios.append((label, ratio, relation, aim))
    for case in ("contended session@64", "contended unary@64"):
        wait = medians[case]
        median = wait.get("wait_p50_us", 0)
        ratio = wait["wait_p99_us"] / median if median else float("nan")
        ratios.append((f"wait p99 to p50, {case}", ratio, "<=", FAIRNESS_MOST))
    return ratios


def reached(ratio, relation, aim):
    return ratio >= aim if relation == ">=" else ratio <= aim


def print_tables(medians, ratios):
    columns = ("per_s", "cycle_p50_us", "cycle_p99_us", "hand_off_p50_us", "wait_p50_us",
               "wait_p99_us", "errors")
    print(f"{'median of the rounds':24}" + "".join(f"{name:>16}" for name in columns))
    for case, figures in medians.items():
        cells = (f"{figures[name]:16.0f}" if name in figures else f"{'':16}" for name in columns)
        print(f"{case:24}" + "".join(cells))
    print()
    for label, ratio, relation, aim in ratios:
        verdict = "reached" if reached(ratio, relation, aim) else "not reached"
        print(f"{label:48}{ratio:9.2f}   {relation} {aim:<5} {verdict}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", help="lines of: case, tab, the generator's JSON")
    parser.add_argument("--json", help="file to write")
    arguments = parser.parse_args()
    medians = medians_of(arguments.results)
    ratios = ratios_of(medians)
    print_tables(medians, ratios)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"medians": medians,
                       "ratios": [{"what": label, "ratio": ratio, "aim": aim, "relation": relation,
                                   "reached": reached(ratio, relation, aim)}
                                  for label, ratio, relation, aim in ratios]}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
