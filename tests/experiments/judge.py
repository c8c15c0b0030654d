"""The table and the picture of what compare.py trained. `reports` are those of
`diloco-worker simulate`, by setting and seed."""
import statistics

from settings import BASELINES, SETTINGS


def losses(reports, name):
    return {seed: report["eval_loss"]
            for seed, report in reports[name].items()}


def recovered(reports, name):
    """G of each seed: the share of the way from alone to synchronous."""
    alone, whole = losses(reports, "alone"), losses(reports, "synchronous")
    return [(alone[seed] - loss) / (alone[seed] - whole[seed])
            for seed, loss in losses(reports, name).items()]


def waiting(report):
    """The largest share of a worker's time that it waits."""
    shares = []
    for worker in report["workers"]:
        whole = sum(worker[f"{what}_seconds"]
                    for what in ("train", "transfer", "wait"))
        shares.append(worker["wait_seconds"] / whole if whole else 0)
    return max(shares, default=0)


def figure(reports, name, limit):
    """The mean over seeds of what `limit` is about; None: its base is not
    there."""
    if limit.figure == "G":
        return statistics.mean(recovered(reports, name))
    if limit.figure == "waits":
        return max(waiting(report) for report in reports[name].values())
    if limit.base not in reports:
        return None
    base = losses(reports, limit.base)
    change = statistics.mean(loss / base[seed] - 1
                             for seed, loss in losses(reports, name).items())
    return abs(change) if limit.either else change


def broken(reports, name, limits):
    """Limits that do not hold, with their figures."""
    found = []
    for limit in limits:
        value = figure(reports, name, limit)
        if value is None:
            continue
        if value < limit.bound if limit.least else value > limit.bound:
            found.append(f"{limit.text()}: {value:.4f}")
    return found


def verdict(reports, name):
    """(good, words) of a row."""
    if name in BASELINES:
        return True, ""
    setting = SETTINGS[name]
    if not setting.spoils:
        failed = broken(reports, name, setting.limits)
        if failed:
            return False, "FAILS " + "; ".join(failed)
        held = [limit for limit in setting.limits
                if figure(reports, name, limit) is not None]
        return True, "; ".join(limit.text() for limit in held)
    failed = broken(reports, name, SETTINGS[setting.spoils].limits)
    words = f"planted mistake in {setting.spoils}, "
    if failed:
        return True, words + "shows: " + "; ".join(failed)
    return False, words + "DOES NOT SHOW"


def table(reports):
    """Rows of text."""
    rows = [f"{'setting':18} {'loss':>8} {'+- seeds':>8} {'G':>7} "
            f"{'waits':>6} {'MB up':>8}  limits"]
    for name, by_seed in reports.items():
        values = list(losses(reports, name).values())
        spread = statistics.stdev(values) if len(values) > 1 else 0
        first = next(iter(by_seed.values()))
        sent = sum(worker["bytes_sent"] for worker in first["workers"]) / 1e6
        rows.append(f"{name:18} {statistics.mean(values):8.4f} {spread:8.4f} "
                    f"{statistics.mean(recovered(reports, name)):7.3f} "
                    f"{waiting(first):6.1%} {sent:8.1f}  "
                    f"{verdict(reports, name)[1]}".rstrip())
    return rows


def picture(reports):
    """SVG: a row a setting, a dot a seed, the mean as a bar; the baselines'
    means as lines through all rows."""
    left, right, top, row = 150, 620, 30, 22
    values = [loss for name in reports
              for loss in losses(reports, name).values()]
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or 0.1

    def place(loss):
        share = (loss - low + margin) / (high - low + 2 * margin)
        return left + share * (right - left)

    bottom = top + row * len(reports)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + 20}" '
           f'height="{bottom + 40}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    for name, colour in zip(BASELINES, ("#c44", "#484")):
        x = place(statistics.mean(losses(reports, name).values()))
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 12}" '
                   f'y2="{bottom}" stroke="{colour}" stroke-dasharray="4 3"/>')
    for i, name in enumerate(reports):
        y = top + row * i + row / 2
        mistake = name in SETTINGS and SETTINGS[name].spoils
        colour = "#a50" if mistake else "#247"
        mean = place(statistics.mean(losses(reports, name).values()))
        out.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end" '
                   f'fill="{colour}">{name}</text>')
        out.append(f'<line x1="{mean:.1f}" x2="{mean:.1f}" y1="{y - 7}" '
                   f'y2="{y + 7}" stroke="{colour}" stroke-width="3"/>')
        out += [f'<circle cx="{place(loss):.1f}" cy="{y}" r="3" '
                f'fill="{colour}" fill-opacity="0.5"/>'
                for loss in losses(reports, name).values()]
    for loss in (low, (low + high) / 2, high):
        out.append(f'<text x="{place(loss):.1f}" y="{bottom + 18}" '
                   f'text-anchor="middle">{loss:.3f}</text>')
    out.append(f'<text x="{(left + right) / 2}" y="{bottom + 34}" '
               'text-anchor="middle">loss of theta, nats per token; orange: '
               'planted mistakes</text></svg>')
    return "\n".join(out) + "\n"
