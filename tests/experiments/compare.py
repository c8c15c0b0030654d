#!/usr/bin/env python3
"""What a setting is worth: real training by `diloco-worker simulate`, paired by
seed, beside one worker alone and synchronous training with k times the batch.

    python3 tests/experiments/compare.py --data DIR --out DIR

Each row of the table is a run file; see README.md for what is in it and how it
is judged. A run that is in --out already is not trained again.
"""
import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BIN = os.environ.get("DILOCO_BIN",
                     os.path.join(ROOT, "build", "release", "bin"))
WORKER = os.path.join(BIN, "diloco-worker")

RESET = {"DILOCO_TEST_RESET_ADAMW": "1"}
PLAIN = {"up": "fp32", "down": "fp32"}
AVERAGE = {"rule": "sgd", "lr": 1.0, "momentum": 0}
# Name: sections of the run file that differ from `diloco`, flags of simulate,
# environment, and whether it is a mistake that must show.
SETTINGS = {
    "diloco": ({}, [], {}, False),
    "fedavg": ({"outer": AVERAGE}, [], {}, False),
    "int8": ({"sync": {"up": "int8"}}, [], {}, False),
    "e3m0": ({"sync": {"up": "e3m0"}}, [], {}, False),
    "e3m0-feedback": ({"sync": {"up": "e3m0", "error_feedback": "on"}}, [], {},
                      False),
    "adamw-reset": ({}, [], RESET, True),
    "kill": ({"sync": {"deadline": "auto"}}, ["--kill", "w2@2"], {}, False),
    "slow": ({"sync": {"deadline": "auto"}}, ["--speeds", "0.33,1"], {}, False),
}
BASELINES = ("alone", "synchronous")


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
    """Sections of a run file."""
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
        "outer": {"lr": a.outer_lr, "momentum": a.outer_momentum},
        "join": {"wait_for": workers},
        # The last version only: that is what is compared.
        "eval": {"shard": os.path.abspath(valid), "tokens": a.eval_tokens,
                 "every": f"{math.ceil(a.steps / a.interval)} rounds"},
        "keep": {"free_space": 0},
    }
    if name in BASELINES:
        # One worker whose steps theta follows, up to rounding.
        change = {"sync": PLAIN, "outer": AVERAGE}
    else:
        change = SETTINGS[name][0]
    for section, values in change.items():
        run[section] = {**run[section], **values}
    if name == "slow" or name == "kill":
        run["eval"]["every"] = "1 round"
    return run


def simulate(a, name, seed, manifest, train, valid):
    """report.json of the run, trained unless it is there."""
    out = os.path.join(a.out, f"{name}-{seed}")
    report = os.path.join(out, "report.json")
    if not os.path.exists(report):
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        path = os.path.join(out, "run.yaml")
        with open(path, "w", encoding="utf-8") as file:
            for section, values in run_file(a, name, seed, manifest,
                                            valid).items():
                file.write(f"{section}: {yaml(values)}\n")
        flags, more = ([], {}) if name in BASELINES else SETTINGS[name][1:3]
        data = {"alone": train[0],
                "synchronous": joined_shards(train[:a.workers], a.out)}
        workers = 1 if name in BASELINES else a.workers
        command = [WORKER, "simulate", "--config", path, "--out", out,
                   "--data", data.get(name, ",".join(train[:a.workers])),
                   "--workers", str(workers), "--threads", str(a.threads),
                   *flags]
        with open(os.path.join(out, "log"), "w", encoding="utf-8") as log:
            done = subprocess.run(command, stdout=log, stderr=log, check=False,
                                  env={**os.environ, **more})
        if done.returncode != 0:
            with open(os.path.join(out, "log"), encoding="utf-8") as log:
                sys.exit(f"{' '.join(command)}\n{log.read()[-2000:]}")
        for big in ("state", "scratch"):
            shutil.rmtree(os.path.join(out, big), ignore_errors=True)
    with open(report, encoding="utf-8") as file:
        return json.load(file)


def waiting(report):
    """The largest share of a worker's time that it waits."""
    shares = []
    for worker in report["workers"]:
        whole = sum(worker[f"{what}_seconds"]
                    for what in ("train", "transfer", "wait"))
        shares.append(worker["wait_seconds"] / whole if whole else 0)
    return max(shares, default=0)


def table(reports, seeds):
    """Rows of text; `reports` by name and seed."""
    rows = [f"{'setting':18} {'loss':>8} {'+- seeds':>8} {'G':>7} "
            f"{'waits':>6} {'MB up':>8}"]
    for name, by_seed in reports.items():
        losses = [by_seed[seed]["eval_loss"] for seed in seeds]
        shares = []
        for seed, loss in zip(seeds, losses):
            alone = reports["alone"][seed]["eval_loss"]
            synchronous = reports["synchronous"][seed]["eval_loss"]
            shares.append((alone - loss) / (alone - synchronous))
        spread = statistics.stdev(losses) if len(losses) > 1 else 0
        up = sum(worker["bytes_sent"]
                 for worker in by_seed[seeds[0]]["workers"]) / 1e6
        mistake = name in SETTINGS and SETTINGS[name][3]
        rows.append(f"{name:18} {statistics.mean(losses):8.4f} {spread:8.4f} "
                    f"{statistics.mean(shares):7.3f} "
                    f"{waiting(by_seed[seeds[0]]):6.1%} {up:8.1f}"
                    + ("   planted mistake" if mistake else ""))
    return rows


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True,
                        help="what `diloco-worker tokenize` wrote")
    parser.add_argument("--out", required=True)
    parser.add_argument("--settings", default=",".join(SETTINGS),
                        help="rows besides " + " and ".join(BASELINES))
    parser.add_argument("--seeds", default="1,2,3")
    for flag, value, what in (
            ("workers", 4, "k"), ("steps", 400, "inner steps of each worker"),
            ("interval", 20, "H"), ("batch-tokens", 1024, ""),
            ("seq-len", 128, ""), ("layers", 4, ""), ("hidden", 128, ""),
            ("heads", 4, ""), ("ffn", 344, ""), ("vocab", 0, "0: the data's"),
            ("eval-tokens", 32768, ""), ("threads", 1, "of LibTorch")):
        parser.add_argument("--" + flag, type=int, default=value, help=what)
    for flag, value in (("lr", 3e-3), ("outer-lr", 0.7),
                        ("outer-momentum", 0.5)):
        parser.add_argument("--" + flag, type=float, default=value)
    return parser.parse_args()


def main():
    a = parse()
    os.makedirs(a.out, exist_ok=True)
    manifest, train, valid = read_manifest(a.data)
    if len(train) < a.workers:
        sys.exit(f"{a.data} has {len(train)} training shards, "
                 f"{a.workers} workers need as many (tokenize --parts)")
    a.vocab = a.vocab or manifest["vocab"]
    seeds = [int(seed) for seed in a.seeds.split(",")]
    reports = {}
    for name in [*BASELINES, *filter(None, a.settings.split(","))]:
        if name not in SETTINGS and name not in BASELINES:
            sys.exit(f"no setting {name}: {', '.join(SETTINGS)}")
        reports[name] = {}
        for seed in seeds:
            reports[name][seed] = simulate(
                a, name, seed, os.path.join(a.data, "dataset.json"), train,
                valid)
            print(f"{name} seed {seed}: {reports[name][seed]['eval_loss']:.4f}",
                  file=sys.stderr)
    text = "\n".join(table(reports, seeds))
    with open(os.path.join(a.out, "table.txt"), "w", encoding="utf-8") as file:
        file.write(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
