"""C3.7: what leaves the product opens in Hugging Face tools and gives the same
numbers. Skipped without the Python packages torch, transformers and
sentencepiece, which only compare.

Ours is what diloco-fixtures finds when it is given the logits of transformers
as a file of reference data."""
import array
import json
import os
import shutil
import unittest

import harness
import identity

try:
    import sentencepiece
    import torch
    import transformers
except ImportError as error:
    MISSING = str(error)
else:
    MISSING = None

FIXTURES_PROGRAM = os.path.join(harness.BIN, "diloco-fixtures")
HEADS, KV_HEADS, HEAD_DIM, PIECES, SEQ_LEN = 4, 2, 8, 512, 64

# What a file of the form `training` says of its numbers; only `batch` and the
# tolerance of logits and loss matter here.
CONVENTIONS = {
    "batch": "1 sequences of 64 tokens; row b = tokens[offset_b : offset_b + "
             "64]",
    "adamw": "m = 0.9 m + 0.1 g; v = 0.95 v + 0.05 g^2; p -= lr / (1 - 0.9^n) "
             "* m / (sqrt(v) / sqrt(1 - 0.95^n) + 1e-8)",
    "weight_decay": "0.1 on every tensor with two dimensions",
    "clip": "every gradient times min(1, 1 / (total + 1e-6))",
    "lr": "given"}
TOLERANCE = {
    "losses_relative": 1e-5, "logits_absolute": 1e-5,
    "parameter_norms_relative": 1e-5, "parameter_values_absolute": 3e-5,
    "gradient_norms_relative": 2e-5,
    "gradient_values_relative_to_tensor_l2": 1e-5,
    "delta_and_momentum_norms_relative": 3e-5, "lr_relative": 1e-7}

STRINGS = ("In the beginning God created the heaven and the earth.", "",
           " ", "  two  spaces  ", " leading", "trailing ", "a\nb\n\nc",
           "And the LORD said unto Moses, Go in unto Pharaoh",
           "12345 1,000", "can't CAN'T", "caf\u00e9 na\u00efve",
           "\u05d1\u05e8\u05d0\u05e9\u05d9\u05ea", "\U0001f642 emoji",
           "tab\there", "\u00a0nbsp", "e\u0301 combining",
           "\u2581 the piece's own space", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")


@unittest.skipIf(MISSING, MISSING)
class HuggingFace(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        """A model of a few steps with grouped-query attention, imported into a
        run and exported from it."""
        cls.cluster = harness.Cluster(workers=1)
        cls.addClassCleanup(cls.cluster.__exit__)
        path = cls.cluster.path
        text = os.path.join(harness.data_dir(), "text.txt")
        cls.tool("train-tokenizer", "--in", text, "--out", path("p.model"),
                 "--vocab", str(PIECES))
        cls.tool("tokenize", "--in", text, "--out", path("data"),
                 "--tokenizer", path("p.model"), "--document-per-line")
        cls.tool("train-local", "--layers", "2", "--hidden",
                 str(HEADS * HEAD_DIM), "--heads", str(HEADS), "--kv-heads",
                 str(KV_HEADS), "--ffn", "64", "--vocab", str(PIECES),
                 "--tied=false", "--seq-len", str(SEQ_LEN), "--data",
                 path("data", "train-0.bin"), "--steps", "100", "--tokenizer",
                 path("data", "tokenizer.model"), "--out", path("start"))
        cls.cluster.settings["model"] = {"from": path("start")}
        cls.cluster.settings["data"]["seq_len"] = SEQ_LEN
        cls.cluster.start_coordinator()
        cls.model = path("exported")
        done = cls.cluster.ctl("export", "--out", cls.model)
        assert done.returncode == 0, done.stderr

    @staticmethod
    def tool(*arguments):
        done = harness.run([harness.WORKER, *arguments])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_C3_7_import_then_export_gives_the_same_tensors(self):
        start, exported = (
            identity.read_safetensors(os.path.join(folder, "model.safetensors"))
            for folder in (self.cluster.path("start"), self.model))
        self.assertEqual({name: values.tobytes()
                          for name, values in start.items()},
                         {name: values.tobytes()
                          for name, values in exported.items()})

    def test_C3_7_logits_are_those_of_transformers(self):
        logits, loss = self.their_logits(self.model)
        done = self.our_verdict("same", self.model, logits, loss)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # That this can fail: rows of queries and keys in the order of the
        # other rotary convention, every shape as it should be.
        twin = self.cluster.path("twin")
        shutil.copytree(self.model, twin)
        model = transformers.AutoModelForCausalLM.from_pretrained(twin)
        for name, values in model.state_dict().items():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                values.copy_(values.view(-1, 2, HEAD_DIM // 2, values.shape[1])
                             .transpose(1, 2).reshape(values.shape).clone())
        model.save_pretrained(twin)
        done = self.our_verdict("twin", twin, logits, loss)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("one_batch", done.stdout)
        # And read back by them: it is a model, just another one.
        wrong, _ = self.their_logits(twin)
        self.assertGreater((wrong - logits).abs().max().item(), 1e-3)

    def window(self):
        ids = array.array("H")
        with open(self.cluster.path("data", "train-0.bin"), "rb") as shard:
            ids.frombytes(shard.read(2 * SEQ_LEN))
        return ids

    def their_logits(self, folder):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        ids = torch.tensor([list(self.window())])
        with torch.no_grad():
            out = model(input_ids=ids, labels=ids)
        return out.logits[0], out.loss.item()

    def our_verdict(self, name, folder, logits, loss):
        form = self.cluster.path(f"form-{name}")
        shutil.copytree(folder, form)
        with open(os.path.join(form, "tokens.bin"), "wb") as tokens:
            tokens.write(self.window().tobytes())
        batch = {"offsets": [0], "loss": loss}
        for position in (0, 1, SEQ_LEN - 1):
            batch[f"logits_row0_position{position}_first{PIECES}"] = (
                logits[position].tolist())
        with open(os.path.join(form, "reference.json"), "w",
                  encoding="utf-8") as out:
            json.dump({"form": "training", "checkpoint": ".",
                       "what": "transformers on the exported directory",
                       "made_with": transformers.__version__,
                       "tolerance": TOLERANCE, "conventions": CONVENTIONS,
                       "one_batch": batch}, out)
        return harness.run(
            [FIXTURES_PROGRAM, os.path.join(form, "reference.json")])

    def test_tokenizer_gives_the_ids_of_sentencepiece(self):
        theirs = transformers.AutoTokenizer.from_pretrained(self.model)
        pieces = sentencepiece.SentencePieceProcessor(
            model_file=os.path.join(self.model, "tokenizer.model"))
        for text in STRINGS:
            with self.subTest(text):
                ids = theirs(text, add_special_tokens=False)["input_ids"]
                self.assertEqual(ids, pieces.encode(text))
                self.assertEqual(theirs.decode(ids), pieces.decode(ids))
        with open(os.path.join(harness.data_dir(), "text.txt"),
                  encoding="utf-8") as corpus:
            text = corpus.read()[:50000]
        self.assertEqual(theirs(text, add_special_tokens=False)["input_ids"],
                         pieces.encode(text))

    def test_pipeline_generates_what_sample_does(self):
        prompt = "And God said"
        generate = transformers.pipeline("text-generation", model=self.model)
        theirs = generate(prompt, max_new_tokens=20, do_sample=False)
        ours = self.tool("sample", "--model", self.model, "--prompt", prompt,
                         "--tokens", "20", "--temperature", "0")
        self.assertEqual(theirs[0]["generated_text"], ours.rstrip("\n"))
        self.assertGreater(len(ours), len(prompt) + 5)


if __name__ == "__main__":
    harness.main()
