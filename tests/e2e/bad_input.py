"""What a program that was given bad input must look like when it has ended.
Used by the bad_*_test.py files."""
import unittest


class BadInput(unittest.TestCase):

    def assert_error(self, process, code, *words, errors=1):
        """Ended with `code`; its last line, the only error, has `words`.
        `errors` allows for more of them."""
        self.assertEqual(process.wait(), code, process.log())
        lines = process.log().strip().splitlines()
        for word in words:
            self.assertIn(word, lines[-1])
        found = [line for line in lines if " error " in line]
        self.assertLessEqual(len(found), errors, found)
