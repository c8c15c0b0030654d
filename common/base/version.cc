#include "common/base/version.h"

namespace diloco {

const char* BuildVersion() { return DILOCO_VERSION; }

}  // namespace diloco
