// The dot of a level whose other loops are those of a lower one, compiled with its instructions and CLADE_DOT naming it.
#include <algorithm>
#include <type_traits>

#include "level.h"
#include "simd.h"

namespace clade {
namespace {

#include "elements.inl"
#include "dot.inl"

}  // namespace

DotTile* const CLADE_DOT = dot;

}  // namespace clade
