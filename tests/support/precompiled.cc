// CMake precompiles headers for a target that has a source.
#include "tests/support/precompiled.h"
