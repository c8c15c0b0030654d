#include "coordinator/cli/who.h"

#include <pwd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"

namespace diloco {

std::string WhoAsks() {
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  const passwd* const user = getpwuid(getuid());
  return Printable(absl::StrCat(user != nullptr ? user->pw_name : "", "@",
                                host[0] != '\0' ? host : "unknown"));
}

}  // namespace diloco
