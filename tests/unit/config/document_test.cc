// Structure and encoding of config files: acceptance cases C4.2 and C4.3.
#include "common/config/document.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

std::vector<std::string> ErrorsOf(const std::string& text) {
  ConfigErrors errors("run.yaml");
  Node root;
  ParseDocument(text, &errors, &root);
  return errors.Lines();
}

struct BadText {
  const char* what;
  std::string text;
  const char* where;  // Beginning of the line.
  const char* words;  // Something it must contain.
};

TEST_CASE("C4.3 broken structure is one error with position and hint") {
  using std::string_literals::operator""s;
  const BadText cases[] = {
      {"tab as indentation", "a:\n\tb: 1\n", "run.yaml:2:1: ", "use spaces"},
      {"UTF-16 LE", "\xff\xfe"s + "a\0:\0"s, "run.yaml:1:1: ", "UTF-8"},
      {"UTF-16 BE", "\xfe\xff"s + "\0a\0:"s, "run.yaml:1:1: ", "UTF-8"},
      {"UTF-16 without mark", "a\0:\0 \0"s, "run.yaml:1:1: ", "UTF-8"},
      {"invalid UTF-8", "ab: \xff\n", "run.yaml:1:5: ", "0xff is not UTF-8"},
      {"overlong UTF-8", "a: \xc0\xaf\n", "run.yaml:1:4: ", "not UTF-8"},
      {"surrogate", "a: \xed\xa0\x80\n", "run.yaml:1:4: ", "not UTF-8"},
      {"cut UTF-8", "a: \xe2\x82", "run.yaml:1:4: ", "not UTF-8"},
      {"no space", "interval:100\n", "run.yaml:1:1: ", "space after ':'"},
      {"no space, then a good line", "interval:100\nup: fp16\n",
       "run.yaml:", "space after ':'"},
      {"second document", "a: 1\n---\nb: 2\n",
       "run.yaml:2:1: ", "second document"},
      {"second document, first empty", "---\n---\nb: 2\n",
       "run.yaml:2:1: ", "second document"},
      {"list that swallows a line", "- 1\n-2\n",
       "run.yaml:2:1: ", "space after '-'"},
      {"list on top", "- 1\n- 2\n", "run.yaml:1:1: ", "key: value"},
      {"word on top", "hello\n", "run.yaml:1:1: ", "key: value"},
      {"directive", "%YAML 1.2\n---\na: 1\n", "run.yaml:1:1: ", "directive"},
      {"directive of nobody", "a: 1\n%x y\n", "run.yaml:2:1: ", "directive"},
      {"open bracket", "a: [1, 2\n", "run.yaml:", ""},
      {"open quote", "a: \"x\n", "run.yaml:1:4: ", "never closed"},
      {"open quote over lines", "a: 'x\nb: 1\n\n",
       "run.yaml:1:4: ", "never closed"},
      {"control character", "a: \x01\n", "run.yaml:1:4: ", "0x01"},
      {"carriage return alone", "a: 1\rb: 2\n", "run.yaml:1:5: ", "0x0d"},
      {"list key", "? [a]\n: 1\n", "run.yaml:1:3: ", "a key must be a word"},
      {"anchor", "a: &x 1\n", "run.yaml:1:4: ", "anchors"},
      {"alias", "a: &x 1\nb: *x\n", "run.yaml:1:4: ", "anchors"},
      {"cycle", "a: &x [*x]\n", "run.yaml:1:4: ", "anchors"},
      {"merge key", "a: {b: 1}\n<<: {c: 1}\n", "run.yaml:2:1: ", "merge keys"},
      {"tag", "a: !!str 1\n", "run.yaml:1:4: ", "tag"},
      {"bad indentation", "a:\n  b: 1\n c: 2\n", "run.yaml:3:", ""},
      {"deep nesting",
       absl::StrCat("a: ", std::string(5000, '['), std::string(5000, ']')),
       "run.yaml:1:", "deep"},
  };
  for (const BadText& c : cases) {
    INFO(c.what);
    const std::vector<std::string> errors = ErrorsOf(c.text);
    REQUIRE(!errors.empty());
    CAPTURE(errors[0]);
    CHECK(absl::StartsWith(errors[0], c.where));
    CHECK(absl::StrContains(errors[0], c.words));
  }
}

TEST_CASE("C4.3 byte order mark, CRLF and a tab after a colon are accepted") {
  ConfigErrors errors("run.yaml");
  Node root;
  REQUIRE(ParseDocument("\xef\xbb\xbf# x\r\na:\r\n  b:\t1\r\nc: \"x\"\r\n",
                        &errors, &root));
  CAPTURE(errors.Lines());
  REQUIRE(errors.empty());
  REQUIRE(root.entries.size() == 2);
  const Node::Entry* b = root.Find("a")->value.Find("b");
  REQUIRE(b != nullptr);
  CHECK(b->value.text == "1");
  CHECK(b->position == Position{3, 3});
  CHECK(root.Find("c")->value.quoted);
}

TEST_CASE("C4.2 the same key twice is an error with both lines") {
  std::string far = "sync:\n  interval: 1\n";
  for (int i = 0; i < 199; ++i) absl::StrAppend(&far, "  k", i, ": 1\n");
  far += "  interval: 2\n";
  const BadText cases[] = {
      {"200 lines apart", far,
       "run.yaml:202:3: ", "first on line 2, again on line 202"},
      {"section twice", "sync:\n  a: 1\nrun:\n  b: 1\nsync:\n  c: 1\n",
       "run.yaml:5:1: ", "first on line 1, again on line 5"},
      {"flow map", "x: {a: 1, a: 2}\n", "run.yaml:1:11: ", "\"a\""},
      {"nested flow map", "x: {y: [{a: 1,\n  a: 2}]}\n",
       "run.yaml:2:3: ", "first on line 1, again on line 2"},
      {"quoted and plain", "interval: 1\n\"interval\": 2\n",
       "run.yaml:2:1: ", "first on line 1, again on line 2"},
  };
  for (const BadText& c : cases) {
    INFO(c.what);
    const std::vector<std::string> errors = ErrorsOf(c.text);
    REQUIRE(errors.size() == 1);
    CAPTURE(errors[0]);
    CHECK(absl::StartsWith(errors[0], c.where));
    CHECK(absl::StrContains(errors[0], c.words));
  }
}

TEST_CASE("after a duplicate the tree is whole and the first value counts") {
  ConfigErrors errors("f");
  Node root;
  REQUIRE(ParseDocument("a: 1\na: {b: [1, 2]}\nc: 3\n", &errors, &root));
  REQUIRE(errors.Lines().size() == 1);
  REQUIRE(root.entries.size() == 2);
  REQUIRE(root.Find("a")->value.text == "1");
  REQUIRE(root.Find("c")->value.text == "3");
}

TEST_CASE("a word without a colon is seen as such") {
  ConfigErrors errors("f");
  Node root;
  REQUIRE(ParseDocument("a: 1\nb\n", &errors, &root));
  REQUIRE(root.Find("b")->bare);
  REQUIRE(ParseDocument("a: 1\nb:\n", &errors, &root));
  REQUIRE_FALSE(root.Find("b")->bare);
}

TEST_CASE("errors come in file order, one line each") {
  ConfigErrors errors("f");
  errors.Add({2, 1}, "b", "two\nlines");
  errors.Add({1, 5}, "", "first");
  errors.Add({1, 5}, "", "first");
  REQUIRE(errors.Lines() ==
          std::vector<std::string>{"f:1:5: first", "f:2:1: b: two lines"});
}

TEST_CASE("of very many errors the first are shown and the others counted") {
  ConfigErrors errors("f");
  for (int i = 50000; i > 0; --i) errors.Add({i, 1}, "", "bad");
  // Comparing each with all the others would take minutes.
  const Instant start = Clock::Real()->Now();
  const std::vector<std::string> lines = errors.Lines();
  REQUIRE(Clock::Real()->Now() - start < absl::Seconds(10));
  REQUIRE(lines.size() == 21);
  REQUIRE(lines[0] == "f:1:1: bad");
  REQUIRE(lines[19] == "f:20:1: bad");
  REQUIRE(lines[20] == "f: and 49980 errors more; mend these first");
}

}  // namespace
}  // namespace diloco
