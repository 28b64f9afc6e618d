// The last error of the calling thread, and the guard that turns exceptions into it.
#pragma once
#include <exception>
#include <stdexcept>
#include <string>

namespace clade {

std::string& last_error();

// Runs f for the C function `name`; 0, or 1 with what was thrown as the last error.
template <class F>
int guard(const char* name, F&& f) {
  try {
    f();
    return 0;
  } catch (const std::exception& e) {
    last_error() = std::string(name) + ": " + e.what();
  } catch (...) {
    last_error() = std::string(name) + ": unknown error";
  }
  return 1;
}

[[noreturn]] inline void refuse(const std::string& why) { throw std::invalid_argument(why); }

}  // namespace clade
