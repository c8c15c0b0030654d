// CMake precompiles headers for a target that has a source.
#include "common/precompiled/base.h"
