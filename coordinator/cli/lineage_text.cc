#include "coordinator/cli/lineage_text.h"

#include <cstdio>

#include "common/base/ids.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/message_json.h"

namespace diloco {

void PrintLineage(const Invocation& invocation, const std::string& state_dir,
                  const LineageStarted& fact) {
  uint64_t version = 0;
  for (const LineageStarted::Fragment& fragment : fact.fragments) {
    version += fragment.version;
  }
  const LineageStarted::Fragment& begin = fact.fragments[0];
  if (invocation.json) {
    nlohmann::ordered_json json;
    json["state"] = state_dir;
    json["lineage"] = ToHex(fact.lineage);
    json["version"] = version;
    json["digest"] = begin.digest.ToHex();
    json["folded_tokens"] = fact.folded_tokens;
    json["reason"] = fact.reason;
    std::printf("%s\n", JsonLine(json).c_str());
    return;
  }
  std::printf("%s: version %lu, digest %s, %s tokens folded; lineage %s, %s\n",
              state_dir.c_str(), static_cast<unsigned long>(version),
              begin.digest.Short().c_str(),
              FormatCount(fact.folded_tokens).c_str(),
              ToHex(fact.lineage).substr(0, 8).c_str(), fact.reason.c_str());
}

}  // namespace diloco
