#define CLADE_DOT kDotNEON
#include "dot_only.inl"
