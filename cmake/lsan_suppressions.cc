// For builds with AddressSanitizer: the name resolver under gRPC keeps 10 bytes for each look-up.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcares\n"; }
