#!/usr/bin/env python3
"""Training tokens/s of diloco-worker beside PyTorch eager, one thread each.

  python3 tests/bench/train_bench.py build/release/bin/diloco-worker
      [--model tiny|small] [--steps N] [--rounds N]

Needs a Python with torch (any version; the figure names it). Both train a
Llama of the same shape on the same number of random tokens in float32 with
clipping and fused AdamW; PyTorch with scaled_dot_product_attention and
cross_entropy, as a person would write it. They take turns; the figures are
medians over the rounds of each one's median step. Reported, not judged.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, SEQ, BATCH, HEAD_DIM = 2048, 128, 8, 32
SHAPES = {  # layers, hidden, heads, ffn: as in worker/tools.
    "tiny": (4, 128, 4, 344),
    "small": (6, 256, 8, 688),
}


def rotary():
    inverse = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
    angle = torch.outer(torch.arange(SEQ).float(), inverse)
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)


class Block(nn.Module):
    def __init__(self, hidden, heads, ffn):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(hidden), Norm(hidden)
        self.q, self.k, self.v, self.o = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.gate, self.up = (
            nn.Linear(hidden, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cos, sin):
        h = self.norm1(x)
        q, k, v = (
            f(h).view(*h.shape[:2], self.heads, HEAD_DIM).transpose(1, 2)
            for f in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(h.transpose(1, 2).reshape(x.shape))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, layers, hidden, heads, ffn):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, ffn) for _ in range(layers))
        self.norm = Norm(hidden)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.cos, self.sin = rotary()

    def loss(self, ids):
        x = self.embed(ids[:, :-1])
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def eager_step_seconds(shape, ids, steps):
    torch.manual_seed(1)
    model = Llama(*shape)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1},
         {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), fused=True)
    times = []
    for step in range(steps):
        start = time.perf_counter()
        first = step * BATCH % (len(ids) - BATCH)
        optimizer.zero_grad()
        loss = model.loss(ids[first:first + BATCH])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def worker_step_seconds(worker, model, shard, steps):
    run = subprocess.run(
        [worker, "train-local", "--model", model, "--data", shard, "--steps",
         str(steps), "--batch", str(BATCH), "--seq-len", str(SEQ), "--threads",
         "1", "--log-every", "0", "--json"],
        check=True, capture_output=True, text=True)
    return json.loads(run.stdout.splitlines()[-1])["median_step_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worker", help="the diloco-worker to measure")
    parser.add_argument("--model", choices=SHAPES, default="tiny")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)

    draw = random.Random(1)
    windows = 512
    tokens = array("H", (draw.randrange(VOCAB)
                         for _ in range(windows * (SEQ + 1))))
    ids = torch.tensor(tokens.tolist()).view(windows, SEQ + 1)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder, "tokens.bin")
        shard.write_bytes(tokens.tobytes())
        for _ in range(args.rounds):
            theirs.append(
                eager_step_seconds(SHAPES[args.model], ids, args.steps))
            ours.append(worker_step_seconds(
                args.worker, args.model, str(shard), args.steps))
    batch_tokens = BATCH * SEQ
    print(f"{args.model}, {batch_tokens} tokens a step, one thread, medians of "
          f"{args.rounds} rounds of {args.steps} steps")
    for name, times in ((f"PyTorch {torch.__version__} eager", theirs),
                        ("diloco-worker train-local", ours)):
        print(f"{name:32} {batch_tokens / statistics.median(times):9.0f} "
              f"tokens/s  (best {batch_tokens / min(times):.0f})")
    print(f"ratio {statistics.median(theirs) / statistics.median(ours):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
