// What ThreadSanitizer can't see, built into every test under it.

/// An exception that crosses threads is counted inside libstdc++, which is not instrumented: its
/// last reference is seen to free what another thread has read, without the count between the two.
extern "C" const char* __tsan_default_suppressions() { return "race:hyperframes::Error::~Error\n"; }
