#define CLADE_DOT kDotAVXVNNI
#include "dot_only.inl"
