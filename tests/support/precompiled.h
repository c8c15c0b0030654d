// What tests include, precompiled.
#ifndef TESTS_SUPPORT_PRECOMPILED_H_
#define TESTS_SUPPORT_PRECOMPILED_H_

#include "common/precompiled/base.h"
#include "tests/support/catch.h"

#endif  // TESTS_SUPPORT_PRECOMPILED_H_
