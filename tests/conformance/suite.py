"""The images of Kubernetes' own suite, made of this machine's busybox; its run, and the table of what came of it."""

import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import xml.etree.ElementTree as xml
from concurrent.futures import ThreadPoolExecutor

E2E = "registry.k8s.io/e2e-test-images/"
FOCUS = r"\[sig-node\].*\[NodeConformance\]"
SKIP = r"\[Serial\]|\[Slow\]|\[Disruptive\]|\[Flaky\]"
# As far as hooks of the suite use it.
CURL = b"#!/bin/sh\nfor last; do :; done\nexec wget -q -O- \"$last\"\n"
BASH = b"#!/bin/sh\nexec /bin/sh \"$@\"\n"
# A sandbox heeds SIGTERM, as the real one does.
PAUSE = "trap 'exit 0' TERM INT; while :; do sleep 100000 & wait $!; done"
USERS = b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
# From which share of the processors on others than the tests make a run one on a busy machine.
BUSY = 0.25
PAGE = pathlib.Path("tests/conformance/results.md")
# Busybox's shell drops variables like `data-1`, which that of the suite's image passes on: a bare command needs no shell.
SH = b"""#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "-c") && !words[2][strspn(words[2], "abcdefghijklmnopqrstuvwxyz")])
        execlp(words[2], words[2], (char *)0);
    return execv("/bin/busybox", words);
}
"""
# What the suite's image of that name does: its owner is root, and its bit is set.
NONEWPRIVS = b"#include <stdio.h>\n#include <unistd.h>\nint main() { return printf(\"Effective uid: %d\\n\", geteuid()) < 0; }\n"


def add(archive, name, data, mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def layer(files, links=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "usr/bin", "var"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        for name, data, mode in files:
            add(archive, name, data, mode)
        for name, target in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return out.getvalue()


def images(agnhost, into):
    """An archive for `ctr images import`, with the names that the suite asks for."""
    busybox = pathlib.Path("/bin/busybox").read_bytes()
    applets = subprocess.check_output(["/bin/busybox", "--list"], text=True).split()
    links = [(f"bin/{applet}", "busybox") for applet in applets if applet not in ("busybox", "sh")]
    scripts = [("bin/bash", BASH, 0o755), ("bin/curl", CURL, 0o755)]
    with tempfile.TemporaryDirectory() as directory:
        built = pathlib.Path(directory)
        for name, source in (("nnp", NONEWPRIVS), ("sh", SH)):
            subprocess.run(["cc", "-static", "-x", "c", "-", "-o", built / name], input=source, check=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-keyout", built / "localhost.key", "-out", built / "localhost.crt"], check=True, stderr=subprocess.DEVNULL)
        programs = [("bin/busybox", busybox, 0o755), ("bin/sh", (built / "sh").read_bytes(), 0o755)]
        nnp = layer([("bin/nnp", (built / "nnp").read_bytes(), 0o4755)])
        certificate = [(name, (built / name).read_bytes(), 0o644) for name in ("localhost.crt", "localhost.key")]
    shell = layer([*programs, *scripts, ("etc/passwd", USERS, 0o644)], links)
    helper = layer([("agnhost", pathlib.Path(agnhost).read_bytes(), 0o755), *certificate], [("agnhost-2", "agnhost")])
    made = [
        (["registry.k8s.io/pause:3.10.2"], [shell], {"Cmd": ["/bin/sh", "-c", PAUSE]}),
        ([E2E + "busybox:1.37.0-1", E2E + "glibc-dns-testing:2.0.0"], [shell], {"Cmd": ["sh"]}),
        ([E2E + "nonroot:1.5"], [shell], {"Cmd": ["id"], "User": "1234"}),
        ([E2E + "nonewprivs:1.4"], [shell, nnp], {"Cmd": ["nnp"]}),
        ([E2E + "agnhost:2.63.0", E2E + "agnhost:2.55"], [shell, helper], {"Entrypoint": ["/agnhost"], "Cmd": ["pause"]}),
    ]
    manifest, written = [], set()
    with tarfile.open(into, "w") as archive:
        for number, (names, layers, config) in enumerate(made):
            digests = [hashlib.sha256(one).hexdigest() for one in layers]
            for digest, one in zip(digests, layers):
                if digest not in written:
                    add(archive, f"{digest}.tar", one)
                    written.add(digest)
            config = {"Env": ["PATH=/usr/bin:/bin"], **config}
            rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
            image = {"architecture": "amd64", "os": "linux", "config": config, "rootfs": rootfs}
            add(archive, f"{number}.json", json.dumps(image).encode())
            tarballs = [f"{digest}.tar" for digest in digests]
            manifest.append({"Config": f"{number}.json", "RepoTags": names, "Layers": tarballs})
        add(archive, "manifest.json", json.dumps(manifest).encode())


def cases(report):
    """The tests of a report, without those that were left out: name, and why it failed."""
    for case in xml.parse(report).iter("testcase"):
        name = case.get("name")
        if name.startswith("[It]") and case.find("skipped") is None:
            failure = case.find("failure") if case.find("failure") is not None else case.find("error")
            why = None if failure is None else failure.get("message") or case.get("status")
            # The labels once more.
            yield re.sub(r" \[[^]]*\]$", "", name[5:]), why


def used():
    """The ticks of all processors since the machine started: those that anything used, and those that this box did."""
    user, nice, system, _, _, *others = map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    ours = 0
    for process in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            # utime, stime and those of children that have ended (proc(5)).
            ours += sum(map(int, process.read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            pass
    # Steal is among the others: it is time that another machine took.
    return user + nice + system + sum(others[:3]), ours


class Run:
    """One run of the tests, as its record has it: only what ran is in `ends`, with `None` or why it failed."""

    def __init__(self, path, suite, planned):
        self.path, self.started, self.used = path, None, None
        self.record = {"suite": suite, "planned": planned, "ends": {}, "did_not_run": {}}

    def begin(self):
        if self.started is None:
            self.started, self.used = time.monotonic(), used()
            self.record["begun"] = time.strftime("%Y-%m-%d %H:%M", time.gmtime())

    def end(self, name, ran, why):
        self.record["ends" if ran else "did_not_run"][name] = why
        passed = time.monotonic() - self.started
        machine, ours = (now - then for now, then in zip(used(), self.used))
        available = passed * os.cpu_count() * os.sysconf("SC_CLK_TCK")
        self.record |= {"minutes": passed / 60, "others": max(machine - ours, 0) / available}
        self.path.write_text(json.dumps(self.record))


def run(program, work, shards, limit, runs, focus):
    """Runs the tests whose names `focus` finds `runs` times, `shards` at a time, and keeps a record of each run."""
    common = [program, f"--kubeconfig={work}/admin.kubeconfig", "--provider=local", "--num-nodes=1",
              "--ginkgo.no-color", "--ginkgo.v", "--dump-logs-on-failure=false", f"--ginkgo.skip={SKIP}", f"--ginkgo.timeout={limit}"]
    listed = f"{work}/listed.xml"
    subprocess.run([*common, f"--ginkgo.focus={FOCUS}", "--ginkgo.dry-run", f"--ginkgo.junit-report={listed}"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    names = sorted(name for name, _ in cases(listed) if re.search(focus, name))
    suite = subprocess.check_output([program, "--version"], text=True).strip()
    first = len(records(work)) + 1
    all_runs = [Run(pathlib.Path(f"{work}/run-{first + number}.json"), suite, len(names)) for number in range(runs)]
    total, begun, lock, ended = len(names) * runs, time.monotonic(), threading.Lock(), []

    def one(number):
        this, name = all_runs[number // len(names)], names[number % len(names)]
        with lock:
            this.begin()
        # `]` alone needs no escape, and Go takes none for a space.
        exact = re.sub(r"([][(){}.*+?^$|\\])", r"\\\1", name)
        log = f"{work}/log/{this.path.stem}-test-{number % len(names)}"
        with open(log, "w") as out:
            subprocess.run([*common, f"--ginkgo.focus={exact}", f"--ginkgo.junit-report={log}.xml"], stdout=out, stderr=out)
        ends = dict(cases(f"{log}.xml")) if pathlib.Path(f"{log}.xml").exists() else {}
        ran, why = name in ends, ends.get(name, f"the suite ended before it: {log}")
        with lock:
            this.end(name, ran, why)
            ended.append(why is None)
            how = "passed" if why is None else "FAILED" if ran else "DID NOT RUN"
            minutes = (time.monotonic() - begun) / 60
            print(f"{len(ended)} of {total}, {minutes:.0f} min, {this.path.stem}: {how}: {name}", flush=True)
            if why is not None:
                print(f"    {reason(why)} ({log})", flush=True)

    with ThreadPoolExecutor(shards) as pool:
        list(pool.map(one, range(total)))
    print(f"{sum(ended)} of {total} passed")
    if any(this.record["did_not_run"] for this in all_runs):
        sys.exit("some tests did not run: the logs above say why")


def records(work):
    """The records of all runs of a node, the oldest first."""
    paths = pathlib.Path(work).glob("run-*.json")
    return [json.loads(path.read_text()) for path in sorted(paths, key=lambda path: int(path.stem[4:]))]


def reason(why):
    """Of what the suite says: what it waited for or expected, without the objects that it shows."""
    return "`" + re.split(r",? got instead:| +<[*a-z]", " ".join(why.split()).replace("`", "'"))[0][:200] + "`"


def ends_of(name, runs):
    """How a test ended each time that it ran."""
    return [run["ends"][name] for run in runs if name in run["ends"]]


def cell(name, runs):
    """How often a test passed of how often it ran, and why it failed first."""
    ends = ends_of(name, runs)
    if not ends:
        return "not run"
    why = next((f": {reason(why)}" for why in ends if why is not None), "")
    return f"{ends.count(None)} of {len(ends)}{why}"


def always(runs):
    """The tests that ran, and passed each time."""
    ran = {name for run in runs for name in run["ends"]}
    return {name for name in ran if all(why is None for why in ends_of(name, runs))}


def page(work):
    """Writes the page from the records of the runs on each node: beside them, or with WRITE=1 the tracked one."""
    into = PAGE if os.environ.get("WRITE") else pathlib.Path(work) / PAGE.name
    of = {node: records(f"{work}/{node}") for node in ("winddown", "kubelet")}
    of = {node: runs for node, runs in of.items() if runs}
    if "winddown" not in of:
        sys.exit(f"{work} has no record of a run: RUNS=1 makes one")
    tests = {name for run in of["winddown"] for part in ("ends", "did_not_run") for name in run[part]}
    passed, suites = always(of["winddown"]), sorted({run["suite"] for runs in of.values() for run in runs})
    result = f"**{len(passed)} of {len(tests)} passed each time.**"
    if "kubelet" in of:
        both = always(of["kubelet"]) & tests
        ran = {name for run in of["kubelet"] for name in run["ends"]} & tests
        result += f" The kubelet passes {len(both)} of the {len(ran)} that ran with it in the same box"
        result += f", of which {len(passed & both)} pass here."
    lines = [
        "# Conformance of a node",
        "",
        f"`make conformance WRITE=1` writes this page: what Kubernetes' own suite, {', '.join(suites)}, says of a node in cluster mode with",
        "containerd. The tests are those of sig-node that every node has to pass (`[NodeConformance]`), without the slow",
        "and the disruptive, with images made on the machine. The last table says in how many runs each passed.",
        "",
        result,
        "",
        f"A machine is busy while others than the tests take {BUSY:.0%} or more of its processors.",
        "",
        "| run | begun (UTC) | minutes | taken by others | tests that ran |",
        "|---|---|---|---|---|",
    ]
    for node, runs in of.items():
        for number, run in enumerate(runs, 1):
            machine = f"{run['others']:.0%}, {'busy' if run['others'] >= BUSY else 'calm'}"
            ran = f"{len(run['ends'])} of {run['planned']}"
            lines.append(f"| {node} {number} | {run['begun']} | {run['minutes']:.0f} | {machine} | {ran} |")
    lines += ["", f"| test | {' | '.join(of)} |", "|---|" + "---|" * len(of)]
    for name in sorted(tests, key=lambda name: (name in passed, name)):
        cells = [cell(name, runs) for runs in of.values()]
        lines.append(f"| {' | '.join(one.replace('|', chr(92) + '|') for one in (f'`{name}`', *cells))} |")
    into.write_text("\n".join(lines) + "\n")
    print(result.replace("*", ""), f"The table is in {into}")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "images":
        images(*rest)
    elif what == "run":
        run(rest[0], rest[1], int(rest[2]), rest[3], int(rest[4]), rest[5])
    elif what == "page":
        page(*rest)
    else:
        sys.exit(f"{what}: write `images`, `run` or `page`")
