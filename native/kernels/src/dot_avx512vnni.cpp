#define CLADE_DOT kDotAVX512VNNI
#include "dot_only.inl"
