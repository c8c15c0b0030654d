"""What the journal of a run must say whatever happened to it. Used by
network_test.py and chaos_test.py."""


def closed_rounds(cluster):
    """The records of closed rounds, in order."""
    return [event["record"]["round_closed"] for event in cluster.events()
            if "round_closed" in event["record"]]


def check(test, cluster):
    """The divisor is always what was accepted, no update counts twice, and
    versions only grow."""
    committed = {}
    folded = 0
    by_round = {}
    newest = 0
    for event in cluster.events():
        record = event["record"]
        if "update_committed" in record:
            update = record["update_committed"]
            key = (update["worker"], int(update["round"]))
            test.assertNotIn(key, committed)
            committed[key] = update["value"]
        elif "round_closed" in record:
            closed = record["round_closed"]
            number = int(closed["round"])
            names = [member["worker"] for member in closed.get("members", [])]
            test.assertEqual(names, sorted(set(names)))
            for member in closed.get("members", []):
                value = committed[member["worker"], number]
                test.assertEqual(member["digest"], value["digest"])
                test.assertEqual(member["tokens"], value["tokens"])
                folded += int(member["tokens"])
            by_round[number] = folded
        elif "version_published" in record:
            version = record["version_published"]
            test.assertEqual(int(version["folded_tokens"]),
                             by_round[int(version["round"])])
            test.assertEqual(int(version["version"]), newest + 1)
            newest += 1
