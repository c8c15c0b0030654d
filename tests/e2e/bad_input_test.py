"""Bad input to the real programs: one line that says what, where and what to
do, the documented exit code, and a run that goes on where it can."""
import json
import math
import os
import random
import shutil
import socket
import struct
import unittest

import bad_input
import harness

LONG = 100000  # More rounds than any of these tests waits for.


class BadInputTest(bad_input.BadInput):

    # --- Configuration. ---

    def test_C4_2_unknown_key_names_its_place_and_the_nearest_key(self):
        with harness.Cluster() as cluster:
            cluster.settings["sync"]["intervall"] = 3
            coordinator = cluster.start_coordinator(ready=False)
            self.assert_error(coordinator, 2, "run.yaml:", "sync.intervall",
                              "interval")
            self.assertTrue(harness.one_line(coordinator.log()))
            self.assertFalse(os.path.exists(cluster.path("state")))
            worker = cluster.start_worker(0, change={"thread": 1})
            self.assert_error(worker, 2, "worker-0.yaml:", "thread",
                              "threads")
            self.assertTrue(harness.one_line(worker.log()))
            self.assertFalse(os.path.exists(cluster.path("scratch-0")))

    def test_C6_6_an_infinite_value_is_refused_and_its_worker_goes_on(self):
        change = {"train": {"optimizer": {"lr": 10, "clip": 0}},
                  "outer": {"lr": 10}}
        with harness.Cluster(rounds=LONG, workers=1, change=change) as cluster:
            cluster.start_coordinator()
            worker = cluster.start_worker(0)
            refusal = "is refused: part file: model."
            cluster.wait(
                lambda: cluster.coordinator.log().count(refusal) >= 2,
                "two refused updates")
            self.assertIsNone(worker.code(), worker.log()[-500:])
            self.assertIn("the update was refused and does not count",
                          worker.log())
            kept = [name for _, _, names in os.walk(cluster.path("state"))
                    for name in names if name.endswith(".refused")]
            self.assertTrue(kept)

    def test_C7_4_run_setting_in_a_workers_file_says_where_it_belongs(self):
        with harness.Cluster() as cluster:
            worker = cluster.start_worker(0, change={"interval": 5})
            self.assert_error(worker, 2, "interval", "run.yaml")

    def test_model_directory_that_does_not_fit_is_refused(self):
        for what, tensor, words in (
                ("shape", {"shape": [harness.VOCAB, 16]},
                 ("model.embed_tokens.weight", "16")),
                ("dtype", {"dtype": "I32"},
                 ("model.embed_tokens.weight", "I32")),
                ("missing", None, ("model.embed_tokens.weight",))):
            with self.subTest(what), harness.Cluster() as cluster:
                model = cluster.path("model")
                self.write_model(model, tensor)
                cluster.settings["model"] = {"from": model}
                coordinator = cluster.start_coordinator(ready=False)
                self.assert_error(coordinator, 1, model, *words)

    def test_truncated_model_file_is_refused_with_both_sizes(self):
        with harness.Cluster() as cluster:
            model = cluster.path("model")
            self.write_model(model, {})
            path = os.path.join(model, "model.safetensors")
            with open(path, "rb") as file:
                header = 8 + struct.unpack("<Q", file.read(8))[0]
            size = os.path.getsize(path)
            os.truncate(path, size - 4096)
            cluster.settings["model"] = {"from": model}
            self.assert_error(cluster.start_coordinator(ready=False), 1, path,
                              str(size - header), str(size - header - 4096))
            # Cut inside the header.
            os.truncate(path, 100)
            self.assert_error(cluster.start_coordinator(ready=False), 1, path,
                              str(header - 8), "100")
            os.remove(path)
            self.assert_error(cluster.start_coordinator(ready=False), 1, model,
                              "model.safetensors")

    def write_model(self, directory, change):
        """A model of 2 layers, all zeros; `change` is laid over the entry of
        its embedding, None leaves that out."""
        os.mkdir(directory)
        with open(os.path.join(directory, "config.json"), "w",
                  encoding="utf-8") as out:
            json.dump({
                "architectures": ["LlamaForCausalLM"], "model_type": "llama",
                "hidden_size": 32, "num_hidden_layers": 2,
                "num_attention_heads": 2, "num_key_value_heads": 2,
                "head_dim": 16, "intermediate_size": 64,
                "vocab_size": harness.VOCAB, "max_position_embeddings": 32,
                "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                "tie_word_embeddings": True, "hidden_act": "silu"}, out)
        shapes = {"model.norm.weight": [32]}
        for layer in range(2):
            at = f"model.layers.{layer}."
            for name in "qkvo":
                shapes[at + f"self_attn.{name}_proj.weight"] = [32, 32]
            shapes[at + "mlp.gate_proj.weight"] = [64, 32]
            shapes[at + "mlp.up_proj.weight"] = [64, 32]
            shapes[at + "mlp.down_proj.weight"] = [32, 64]
            shapes[at + "input_layernorm.weight"] = [32]
            shapes[at + "post_attention_layernorm.weight"] = [32]
        entries = {name: {"dtype": "F32", "shape": shape}
                   for name, shape in shapes.items()}
        if change is not None:
            entries["model.embed_tokens.weight"] = {
                "dtype": "F32", "shape": [harness.VOCAB, 32], **change}
        end = 0
        for entry in entries.values():
            begin, end = end, end + 4 * math.prod(entry["shape"])
            entry["data_offsets"] = [begin, end]
        header = json.dumps(entries).encode()
        with open(os.path.join(directory, "model.safetensors"), "wb") as out:
            out.write(struct.pack("<Q", len(header)) + header + bytes(end))

    def test_port_in_use_names_the_address(self):
        with harness.Cluster() as cluster, socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            address = f"127.0.0.1:{holder.getsockname()[1]}"
            cluster.settings["listen"]["control"] = address
            self.assert_error(cluster.start_coordinator(ready=False), 1,
                              address, "listen.control")
            cluster.settings["listen"] = {
                "control": f"127.0.0.1:{cluster.port}", "metrics": address}
            self.assert_error(cluster.start_coordinator(ready=False), 1,
                              address, "listen.metrics")

    def test_second_coordinator_on_a_state_directory_is_refused(self):
        with harness.Cluster() as cluster:
            cluster.start_coordinator()
            first = cluster.coordinator
            cluster.settings["listen"]["control"] = (
                f"127.0.0.1:{harness.free_port()}")
            self.assert_error(cluster.start_coordinator(ready=False), 1,
                              "state", str(first.pid))
            self.assertIsNone(first.code())

    # --- Token files: the worker is refused, the others train on. ---

    def test_bad_token_files_end_one_worker_and_the_run_goes_on(self):
        window = harness.SEQ_LEN + 1
        good = struct.pack(f"<{window * 4}H", *([65] * window * 4))
        large = struct.pack(f"<{window * 4}H",
                            *([65] * (window * 4 - 1) + [harness.VOCAB]))
        cases = (
            ("missing", None, ("no such token file", "tokenize")),
            ("odd-sized", good + b"\0", (str(len(good) + 1), "multiple of 2")),
            ("too short", good[:2 * (window - 1)],
             (str(window - 1), str(window))),
            ("id outside the vocabulary", large,
             (str(window * 4 - 1), str(harness.VOCAB))),
        )
        with harness.Cluster(workers=1, rounds=LONG) as cluster:
            cluster.start_all()
            cluster.wait_version(1)
            for number, (what, content, words) in enumerate(cases, 1):
                with self.subTest(what):
                    shard = cluster.path(f"shard-{number}.bin")
                    if content is not None:
                        with open(shard, "wb") as out:
                            out.write(content)
                    worker = cluster.start_worker(number,
                                                  change={"shard": shard})
                    del cluster.workers[number]
                    self.assert_error(worker, 2, shard, *words)
            version = int(cluster.status()["rounds"][0]["version"])
            cluster.wait_version(version + 2)
            cluster.ctl("stop")
            cluster.finish()

    # --- Scratch directories. ---

    def test_damaged_checkpoint_is_reported_and_the_run_goes_on(self):
        with harness.Cluster(workers=2, rounds=LONG) as cluster:
            cluster.start_all()
            cluster.wait_version(3)
            cluster.workers[1].kill()
            scratch = cluster.path("scratch-1")
            draw = random.Random(5)
            damaged = [name for name in os.listdir(scratch)
                       if name.startswith("checkpoint")]
            self.assertTrue(damaged, os.listdir(scratch))
            for name in damaged:
                with open(os.path.join(scratch, name), "r+b") as file:
                    file.write(draw.randbytes(64))
            worker = cluster.start_worker(1)
            cluster.wait_log(worker, "state=fresh")
            self.assertTrue(any(name in worker.log() for name in damaged),
                            worker.log())
            version = int(cluster.status()["rounds"][0]["version"])
            cluster.wait_version(version + 3)
            cluster.ctl("stop")
            cluster.finish()

    def test_C6_2_copied_worker_directory_is_refused_and_the_original_trains_on(
            self):
        with harness.Cluster(workers=1, rounds=LONG) as cluster:
            cluster.start_all()
            cluster.wait_version(1)
            # Taken of a live process: its session is the newest, then is not.
            copy = cluster.path("copy")
            # Files on their way come and go meanwhile.
            shutil.copytree(
                cluster.path("scratch-0"), copy,
                ignore=shutil.ignore_patterns("*.tmp", "*.blob.part"))
            cluster.workers[0].kill()
            original = cluster.start_worker(0)
            cluster.wait_log(original, "joined run=")
            version = int(cluster.status()["rounds"][0]["version"])
            cluster.wait_version(version + 1)
            cluster.write_worker_file(0, {"scratch": copy})
            second = cluster.start_worker(0, change={"scratch": copy})
            self.assert_error(second, 3, "worker-0", "copy", "127.0.0.1")
            cluster.workers[0] = original
            same = cluster.start_worker(0)
            self.assert_error(same, 75, "scratch-0", str(original.pid))
            cluster.workers[0] = original
            version = int(cluster.status()["rounds"][0]["version"])
            cluster.wait_version(version + 2)
            cluster.ctl("stop")
            cluster.finish()

    def test_C6_2_second_worker_under_a_held_name_is_refused(self):
        with harness.Cluster(workers=1, rounds=LONG) as cluster:
            cluster.start_all()
            cluster.wait_version(1)
            original = cluster.workers[0]
            second = cluster.start_worker(
                0, change={"scratch": cluster.path("other"),
                           "connect_timeout": "2s"})
            cluster.wait_log(second, "cannot join yet")
            self.assert_error(second, 3, "worker-0", "held by",
                              "--take-over")
            third = cluster.start_worker(
                0, change={"scratch": cluster.path("third")},
                flags=["--take-over"])
            self.assert_error(original, 3, "worker-0")
            cluster.wait_log(third, "joined run=")
            version = int(cluster.status()["rounds"][0]["version"])
            cluster.wait_version(version + 2)
            cluster.ctl("stop")
            cluster.finish()

    def test_worker_pinned_to_another_run_is_refused(self):
        with harness.Cluster() as cluster:
            cluster.start_coordinator()
            worker = cluster.start_worker(0, change={"run": "exodus"})
            self.assert_error(worker, 4, "exodus", "genesis")

    # --- The network and the disk. ---

    def test_worker_without_a_coordinator_says_so_and_joins_once_it_is_there(
            self):
        with harness.Cluster(workers=1, rounds=2) as cluster:
            worker = cluster.start_worker(0)
            cluster.wait_log(worker, "cannot join yet")
            self.assertIn(f"127.0.0.1:{cluster.port}", worker.log())
            self.assertEqual(worker.log().count("cannot join yet"), 1)
            # Asked to stop while it tries.
            self.assertEqual(worker.terminate(), 0)
            worker = cluster.start_worker(0, change={"connect_timeout": "1s"})
            self.assert_error(worker, 75, f"127.0.0.1:{cluster.port}",
                              "connect_timeout", "start again")
            worker = cluster.start_worker(0)
            cluster.wait_log(worker, "cannot join yet")
            cluster.start_coordinator()
            cluster.finish()

    def test_unreachable_coordinator_ends_the_worker_when_its_patience_does(
            self):
        with harness.Cluster() as cluster:
            worker = cluster.start_worker(0, change={"connect_timeout": "1s"})
            self.assert_error(worker, 75, f"127.0.0.1:{cluster.port}")

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small disk needs root")
    def test_C7_1_full_disk_holds_the_run_and_loses_nothing(self):
        rounds = 12
        undisturbed = harness.undisturbed_digest(rounds=rounds)
        with harness.Cluster(rounds=rounds) as cluster, \
                harness.SmallDisk(cluster.path("disk"), "4m") as disk:
            http = f"127.0.0.1:{harness.free_port()}"
            cluster.settings["listen"]["metrics"] = http
            cluster.settings["state"]["dir"] = os.path.join(disk.path, "state")
            cluster.start_all()
            cluster.wait_version(3)
            self.assertEqual(harness.get(f"http://{http}/readyz")[0], 200)
            disk.fill()
            status = cluster.wait(
                lambda: (lambda status: status and
                         "No space left" in
                         status.get("not_ready_reason", "") and status)(
                             cluster.try_status()),
                "the coordinator reports the full disk")
            self.assertFalse(status.get("ready", False))
            code, reason = harness.get(f"http://{http}/readyz")
            self.assertEqual(code, 503)
            self.assertIn("No space left", reason)
            self.assertEqual(harness.get(f"http://{http}/livez")[0], 200)
            alarms = [line for line in
                      cluster.coordinator.log().splitlines()
                      if " error " in line]
            self.assertTrue(alarms)
            self.assertIn("No space left", alarms[0])
            self.assertIn(disk.path, alarms[0])
            disk.empty()
            self.assertEqual(cluster.finish(), undisturbed)
            self.assertEqual(harness.get(f"http://{http}/readyz")[0], 200)


if __name__ == "__main__":
    harness.main()
