#!/usr/bin/env python3
"""What a setting is worth: real training by `diloco-worker simulate`, paired by
seed, beside one worker alone and synchronous training with k times the batch.

    tests/experiments/prepare --out DIR
    python3 tests/experiments/compare.py --data DIR --out DIR

Each row of the table is a run file; see README.md for what is in it and how it
is judged. A run that is in --out already is not trained again.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time

import judge
from settings import AVERAGE, BASELINES, PLAIN, SETTINGS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BIN = os.environ.get("DILOCO_BIN",
                     os.path.join(ROOT, "build", "release", "bin"))
WORKER = os.path.join(BIN, "diloco-worker")


def yaml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {yaml(v)}" for k, v in value.items()) + "}"
    return str(value)


def read_manifest(data):
    with open(os.path.join(data, "dataset.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    shards = manifest["shards"]
    train = [os.path.join(data, shard["file"]) for shard in shards
             if shard["split"] == "train"]
    valid = [os.path.join(data, shard["file"]) for shard in shards
             if shard["split"] == "valid"]
    return manifest, train, valid[0]


def joined_shards(paths, out):
    """All workers' tokens in one file, for the batch of all of them."""
    joined = os.path.join(out, "all.bin")
    if not os.path.exists(joined):
        with open(joined + ".tmp", "wb") as whole:
            for path in paths:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, whole)
        os.rename(joined + ".tmp", joined)
    return joined


def run_file(a, name, seed, manifest, valid):
    """Text of a run file."""
    workers = 1 if name in BASELINES else a.workers
    batch = a.batch_tokens * (a.workers if name == "synchronous" else 1)
    run = {
        "run": {"name": f"experiment-{name}", "seed": seed},
        "model": {"from": "config", "layers": a.layers, "hidden": a.hidden,
                  "heads": a.heads, "ffn": a.ffn, "vocab": a.vocab,
                  "tied": "true"},
        "data": {"manifest": os.path.abspath(manifest), "seq_len": a.seq_len},
        "train": {"tokens": a.steps * batch * workers, "batch_tokens": batch,
                  "optimizer": {"lr": a.lr},
                  "schedule": {"shape": "wsd", "decay_share": 0.2,
                               "warmup_tokens":
                                   a.steps * batch * workers // 20}},
        "sync": {"interval": a.interval, "deadline": "10h"},
        "outer": {"rule": "nesterov", "lr": a.outer_lr,
                  "momentum": a.outer_momentum},
        "join": {"wait_for": workers},
        # The last version is always evaluated; that is what is compared.
        "eval": {"shard": os.path.abspath(valid), "tokens": a.eval_tokens,
                 "every": "1000000 rounds"},
        "keep": {"free_space": 0},
    }
    if name in BASELINES:
        # One worker whose steps theta follows, up to rounding.
        change = {"sync": PLAIN, "outer": AVERAGE}
    else:
        change = SETTINGS[name].sections
    for section, values in change.items():
        run[section] = {**run[section], **values}
    return "".join(f"{section}: {yaml(values)}\n"
                   for section, values in run.items())


def command_of(a, name, out, train):
    flags = [] if name in BASELINES else SETTINGS[name].flags
    data = {"alone": train[0],
            "synchronous": joined_shards(train[:a.workers], a.out)}
    workers = 1 if name in BASELINES else a.workers
    return ["nice", "-n", str(a.nice), WORKER, "simulate",
            "--config", os.path.join(out, "run.yaml"), "--out", out,
            "--data", data.get(name, ",".join(train[:a.workers])),
            "--workers", str(workers), "--threads", str(a.threads), *flags]


def finished(a, name, seed, text):
    """report.json of the run when it is there and was trained with these
    settings."""
    out = os.path.join(a.out, f"{name}-{seed}")
    report = os.path.join(out, "report.json")
    if not os.path.exists(report):
        return None
    with open(os.path.join(out, "run.yaml"), encoding="utf-8") as file:
        if file.read() != text:
            sys.exit(f"{out} was trained with other settings: take another "
                     "--out, or remove it")
    with open(report, encoding="utf-8") as file:
        return json.load(file)


def simulate(a, name, seed, text, train):
    """Trains the run, from its beginning."""
    out = os.path.join(a.out, f"{name}-{seed}")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    with open(os.path.join(out, "run.yaml"), "w", encoding="utf-8") as file:
        file.write(text)
    environment = dict(os.environ)
    if name in SETTINGS and SETTINGS[name].mistake:
        environment["DILOCO_TEST_MISTAKE"] = SETTINGS[name].mistake
    command = command_of(a, name, out, train)
    with open(os.path.join(out, "log"), "w", encoding="utf-8") as log:
        done = subprocess.run(command, stdout=log, stderr=log, check=False,
                              env=environment)
    if done.returncode != 0:
        with open(os.path.join(out, "log"), encoding="utf-8") as log:
            sys.exit(f"{' '.join(command)}\n{log.read()[-2000:]}")
    for big in ("state", "scratch"):
        shutil.rmtree(os.path.join(out, big), ignore_errors=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True,
                        help="what `prepare` or `diloco-worker tokenize` wrote")
    parser.add_argument("--out", required=True)
    parser.add_argument("--settings", default=",".join(SETTINGS),
                        help="rows besides " + " and ".join(BASELINES))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="begin no further run after so long; the same "
                        "command goes on")
    for flag, value, what in (
            ("workers", 4, "k"), ("steps", 400, "inner steps of each worker"),
            ("interval", 10, "H"), ("batch-tokens", 512, ""),
            ("seq-len", 128, ""), ("layers", 4, ""), ("hidden", 96, ""),
            ("heads", 4, ""), ("ffn", 256, ""), ("vocab", 0, "0: the data's"),
            ("eval-tokens", 32768, ""), ("threads", 1, "of LibTorch"),
            ("nice", 10, "of the runs")):
        parser.add_argument("--" + flag, type=int, default=value, help=what)
    for flag, value in (("lr", 3e-3), ("outer-lr", 0.7),
                        ("outer-momentum", 0.5)):
        parser.add_argument("--" + flag, type=float, default=value)
    return parser.parse_args()


def train_all(a, names, seeds, data):
    """Reports by setting and seed; None when the minutes were over first. Seed
    by seed, so that what there is can be compared."""
    manifest, train, valid = data
    began = time.monotonic()
    reports = {name: {} for name in names}
    for seed in seeds:
        for name in names:
            text = run_file(a, name, seed, manifest, valid)
            report = finished(a, name, seed, text)
            if report is None:
                if time.monotonic() - began > a.minutes * 60:
                    return None
                simulate(a, name, seed, text, train)
                report = finished(a, name, seed, text)
                print(f"{name} seed {seed}: {report['eval_loss']:.4f}",
                      file=sys.stderr, flush=True)
            reports[name][seed] = report
    return reports


def main():
    a = parse()
    os.makedirs(a.out, exist_ok=True)
    manifest, train, valid = read_manifest(a.data)
    if len(train) < a.workers:
        sys.exit(f"{a.data} has {len(train)} training shards, "
                 f"{a.workers} workers need as many (tokenize --parts)")
    a.vocab = a.vocab or manifest["vocab"]
    names = [*BASELINES, *filter(None, a.settings.split(","))]
    for name in names:
        if name not in SETTINGS and name not in BASELINES:
            sys.exit(f"no setting {name}: {', '.join(SETTINGS)}")
    reports = train_all(a, names, [int(seed) for seed in a.seeds.split(",")],
                        (os.path.join(a.data, "dataset.json"), train, valid))
    if reports is None:
        sys.exit("the minutes are over; the same command goes on")
    text = "\n".join(judge.table(reports))
    for name, content in (("table.txt", text + "\n"),
                          ("losses.svg", judge.picture(reports))):
        with open(os.path.join(a.out, name), "w", encoding="utf-8") as file:
            file.write(content)
    print(text)
    if not all(judge.verdict(reports, name)[0] for name in names):
        sys.exit(1)


if __name__ == "__main__":
    main()
