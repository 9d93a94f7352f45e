#!/usr/bin/env python3
"""What a message costs each role: instructions (callgrind) and heap allocations (DHAT), all threads counted.

Starts `s3mq serve`, which isn't instrumented, and has gungraun run the roles against it (benches/code_cost). Of
three runs each, what a role costs is laid out as

    start + per_batch * batches + per_message * messages

from N batches of 1,000 messages, 2 N of 1,000 and N of 10,000; `per_message_in_batches_of_1000` is the slope between
the first two. The consumer reads a table that is complete, one question a version. At the tip of a table that grows
it also asks in vain, how often is a matter of time and not of code: what such a question costs is measured by a
consumer that follows (`consumer_following`), and two of them count into the limit of a batch.

Exit code 1 above a limit of benches/code_cost/limits.toml. `--save` makes the figures those that later runs are
compared with, the field `code_cost` of benches/results/layers.json:

    made_with   what an instruction count depends on besides the code: cpu, rustc, libc, valgrind
    batches     N
    roles       by role, then by metric: `instructions` (executed), `allocations` (heap blocks) and `bytes` (of them)
        per_message_in_batches_of_1000   slope between N and 2 N batches of 1,000, a message
        per_batch_of_1000                the same, a batch with its messages
        per_message, per_batch           apart, by the slope over the batch size
        per_empty_question               a question that finds nothing; of the consumer's allocations
        start                            once, whatever is streamed: the process's start and end

The consumers open a table that isn't there yet, so reading an old table's log is not in their start.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMITS = os.path.join(ROOT, "benches", "code_cost", "limits.toml")
SAVED = os.path.join(ROOT, "benches", "results", "layers.json")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
# The runner has to be of the library's version.
RUNNER_VERSION = "0.19.0"
FEW, LARGE = 1_000, 10_000
# The polling takes two to three GETs of the log a commit, one of which finds it.
EMPTY_QUESTIONS = 2
METRICS = {"instructions": ("Callgrind", "Ir"), "allocations": ("Dhat", "TotalBlocks"), "bytes": ("Dhat", "TotalBytes")}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def made_with():
    """What an instruction count depends on besides the code."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "rustc": output_of("rustc", "--version"),
        "libc": " ".join(platform.libc_ver()),
        "valgrind": output_of("valgrind", "--version"),
    }


def runner_directory():
    """Where gungraun-runner is; installs it below the target directory where it isn't."""
    found = shutil.which("gungraun-runner")
    directory = os.path.join(TARGET, "gungraun-runner")
    ours = os.path.join(directory, "bin", "gungraun-runner")
    for runner in (ours, found):
        if runner and os.path.exists(runner) and RUNNER_VERSION in output_of(runner, "--version"):
            return os.path.dirname(runner)
    command = ["cargo", "install", "gungraun-runner", "--version", f"={RUNNER_VERSION}", "--locked", "--root", directory]
    subprocess.run(command, check=True)
    return os.path.dirname(ours)


def clean_environment():
    """What the environment says of another run or of another store is not for this one."""
    others = ("S3MQ_", "MINIO_", "AWS_", "GUNGRAUN_")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


def start_server(binary):
    server = subprocess.Popen([binary, "serve"], env=clean_environment(), stdout=subprocess.PIPE, text=True)
    variables = {}
    while len(variables) < 4:
        line = server.stdout.readline()
        if not line:
            sys.exit("s3mq serve ended")
        if line.startswith("export "):
            name, value = line.removeprefix("export ").strip().split("=", 1)
            variables[name] = value
    return server, variables


def run_roles(binary, batches, directory):
    """The sums of every run by (role, run, metric), and its empty questions by (role, run, what ran)."""
    events = os.path.join(directory, "events")
    os.mkdir(events)
    server, variables = start_server(binary)
    try:
        environment = clean_environment() | variables
        environment |= {
            "S3MQ_CODE_COST_BINARY": binary,
            "S3MQ_CODE_COST_BATCHES": str(batches),
            "S3MQ_CODE_COST_EVENTS": events,
            "PATH": f"{runner_directory()}{os.pathsep}{os.environ['PATH']}",
        }
        command = ["cargo", "bench", "--quiet", "-p", "s3mq-code-cost", "--"]
        command += ["--output-format=json", "--home", os.path.join(directory, "gungraun")]
        bench = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            output, _ = bench.communicate(timeout=600)
        except BaseException:
            os.killpg(bench.pid, signal.SIGTERM)
            raise
        if bench.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {bench.returncode}\n{output}")
    finally:
        server.terminate()
        server.wait()
    sums = {}
    misses = {}
    for line in output.splitlines():
        summary = json.loads(line)
        role, what = summary["function_name"].rsplit("_", 1)
        misses[role, summary["id"], what] = check_run(events, role, what, summary["id"], batches)
        for metric, (tool, kind) in METRICS.items():
            value = sum_of(summary, tool, kind)
            if value is not None:
                sums[role, summary["id"], metric] = value
    return sums, misses


def sum_of(summary, tool, kind):
    """A metric of one run, `None` where its tool didn't run."""
    for profile in summary["profiles"]:
        if profile["tool"].lower() == tool.lower():
            # Left: of this run; there is none before it to compare with.
            return profile["summaries"]["total"]["summary"][tool][kind]["metrics"]["Left"]["Int"]
    return None


def check_run(events, role, what, run, batches):
    """A run that did something else than it was to do would give a slope of something else. Gives the questions that
    found nothing."""
    name = f"{role}-{what}-{run}"
    with open(os.path.join(events, f"{name}.jsonl"), encoding="utf-8") as file:
        last = json.loads(file.readlines()[-1])
    files = batches * (2 if run == "many" else 1)
    messages = files * (LARGE if run == "large" else FEW)
    requests = {request["purpose"]: request["attempts"] for request in last["requests"]}
    if role == "producer":
        done, wanted = (last["committed"], last["files"], last["commits"]), (messages, files, files + 1)
    else:
        done, wanted = (last["received"], requests["data_get"]), (messages, files)
        # For the table that isn't there, and maybe for what comes after the end of the stream.
        if role == "consumer" and requests["commit_get_miss"] > 2:
            sys.exit(f"{name}: the table was not complete in time; was the machine too busy?")
    if done != wanted:
        sys.exit(f"{name}: {done} in place of {wanted}; was the machine too busy?")
    return requests.get("commit_get_miss", 0)


def cost(sums, misses, role, metric, batches):
    """The cost of a role, laid out."""
    few, many = sums[role, "few", metric], sums[role, "many", metric]
    a_batch = (many - few) / batches
    figures = {"per_message_in_batches_of_1000": a_batch / FEW, "per_batch_of_1000": a_batch, "start": few - batches * a_batch}
    per_message = (sums[role, "large", metric] - few) / (batches * (LARGE - FEW))
    figures |= {"per_message": per_message, "per_batch": a_batch - FEW * per_message}
    following = sums.get(("consumer_following", "many", metric))
    if role == "consumer" and metric == "allocations" and following:
        in_vain = misses["consumer_following", "many", "allocations"] - misses["consumer", "many", "allocations"]
        if in_vain <= 0:
            sys.exit("a consumer that followed never asked in vain; was the machine too busy?")
        figures["per_empty_question"] = (following - many) / in_vain
    return {name: round(value, 6) for name, value in figures.items()}


def failures(limits, figures, saved):
    """What is above a limit, in words."""
    failed = []
    for role, metrics in figures["roles"].items():
        of = metrics["allocations"]
        batch = of["per_batch"] + EMPTY_QUESTIONS * of.get("per_empty_question", 0.0)
        for name, value in (("per_batch", batch), ("per_message", of["per_message"])):
            limit = limits[f"allocations_{name}"]
            if value > limit:
                failed.append(f"{role}: {value:,.4f} allocations {name.replace('_', ' ')}, at most {limit}")
        now = metrics.get("instructions", {}).get("per_message_in_batches_of_1000")
        before = saved and saved["roles"].get(role, {}).get("instructions", {}).get("per_message_in_batches_of_1000")
        if now and before:
            more = (now / before - 1) * 100
            print(f"{role}: {more:+.2f} % instructions against the saved figures")
            if more > limits["instructions_increase_percent"]:
                failed.append(f"{role}: {now:,.1f} instructions a message, {more:.2f} % above the saved {before:,.1f}")
    return failed


def show(figures):
    print(f"{'':<9} {'':<13} {'start':>12} {'a batch':>11} {'a message':>11} {'one in 1,000':>13} {'empty question':>15}")
    for role, metrics in figures["roles"].items():
        for metric, of in metrics.items():
            empty = f"{of['per_empty_question']:,.1f}" if "per_empty_question" in of else ""
            print(
                f"{role:<9} {metric:<13} {of['start']:12,.0f} {of['per_batch']:11,.1f} {of['per_message']:11,.4f} "
                f"{of['per_message_in_batches_of_1000']:13,.4f} {empty:>15}"
            )


def read_saved():
    if not os.path.exists(SAVED):
        return {}
    with open(SAVED, encoding="utf-8") as file:
        return json.load(file)


def save(figures):
    """Puts the figures into the file of all layers and leaves the others as they are."""
    layers = read_saved() | {"code_cost": figures}
    os.makedirs(os.path.dirname(SAVED), exist_ok=True)
    with open(f"{SAVED}.partial", "w", encoding="utf-8") as file:
        json.dump(layers, file, indent=2)
        file.write("\n")
    os.replace(f"{SAVED}.partial", SAVED)
    print(f"saved in {os.path.relpath(SAVED)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20, help="batches of the shorter runs [default: 20]")
    parser.add_argument("--save", action="store_true", help="compare later runs with this one")
    parser.add_argument("--binary", default=os.path.join(TARGET, "release", "s3mq"), help="[default: that of the release build]")
    parser.add_argument("--keep", metavar="DIR", help="keep what callgrind and DHAT wrote in this new directory")
    options = parser.parse_args()
    if not 1 <= options.batches <= 40:
        parser.error("--batches must be 1 to 40: a table has to be complete before its consumer asks for it")

    with open(LIMITS, "rb") as file:
        limits = tomllib.load(file)
    if options.keep:
        os.makedirs(options.keep)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        sums, misses = run_roles(os.path.abspath(options.binary), options.batches, os.path.abspath(options.keep or temporary))
    figures = {"made_with": made_with(), "batches": options.batches, "roles": {}}
    for role, run, metric in sums:
        if run == "few":
            figures["roles"].setdefault(role, {})[metric] = cost(sums, misses, role, metric, options.batches)
    show(figures)
    print(f"took {time.monotonic() - started:.0f} s")

    saved = read_saved().get("code_cost")
    if saved and saved["made_with"] != figures["made_with"]:
        print("instructions are not compared: the saved figures are of another processor or other tools")
        saved = None
    failed = failures(limits, figures, saved)
    if options.save:
        save(figures)
    for failure in failed:
        print(f"FAIL {failure}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
