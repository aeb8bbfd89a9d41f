// The CUDA driver's functions that the Python package and run.py call, writing down what they are asked: in a text,
// and in the file $HEDDLE_FAKE_CUDA_LOG. A module that is a shared object has its kernels run, as functions of that name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kText = 1 << 16, kNames = 16 };
static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;  // callers hold no lock of Python's
static char text[kText];
static char failing[64];
static int failure;
static struct {
  char name[64];
  int arguments;
  void (*run)(void** arguments);
} kernels[kNames];
static int kernel_count;
static _Thread_local uintptr_t stack[8];  // of contexts
static _Thread_local int depth;

static int Note(const char* name, const char* format, ...) {
  pthread_mutex_lock(&noting);
  size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  used += snprintf(text + used, kText - used, "%s", name);
  used += vsnprintf(text + used, kText - used, format, arguments);
  va_end(arguments);
  snprintf(text + used, kText - used, "\n");
  if (getenv("HEDDLE_FAKE_CUDA_LOG") != NULL) {
    FILE* log = fopen(getenv("HEDDLE_FAKE_CUDA_LOG"), "w");
    fputs(text, log);
    fclose(log);
  }
  pthread_mutex_unlock(&noting);
  return strcmp(name, failing) == 0 ? failure : 0;
}

// For tests: what was asked so far, a line each; which function is to fail; a kernel's arguments.
const char* fake_log(void) { return text; }
void fake_clear(void) { text[0] = 0; }
void fake_fail(const char* name, int code) {
  snprintf(failing, sizeof failing, "%s", name);
  failure = code;
}
void fake_kernel(const char* name, int arguments) {
  snprintf(kernels[kernel_count].name, sizeof kernels[0].name, "%s", name);
  kernels[kernel_count++].arguments = arguments;
}

int cuInit(unsigned flags) { return Note("cuInit", " %u", flags); }
int cuDeviceGet(int* device, int ordinal) {
  *device = 100 + ordinal;
  return Note("cuDeviceGet", " %d", ordinal);
}
int cuDevicePrimaryCtxRetain(uintptr_t* context, int device) {
  *context = 1000 + device;
  return Note("cuDevicePrimaryCtxRetain", " %d", device);
}
int cuCtxGetCurrent(uintptr_t* context) {
  *context = depth > 0 ? stack[depth - 1] : 0;
  return 0;
}
int cuCtxPushCurrent_v2(uintptr_t context) {
  stack[depth++] = context;
  return Note("cuCtxPushCurrent", " %d", (int)context);
}
int cuCtxPopCurrent_v2(uintptr_t* context) {
  *context = stack[--depth];
  return Note("cuCtxPopCurrent", " %d", (int)*context);
}
int cuCtxSetCurrent(uintptr_t context) {
  stack[depth > 0 ? depth - 1 : depth++] = context;
  return Note("cuCtxSetCurrent", " %d", (int)context);
}
int cuCtxSynchronize(void) { return Note("cuCtxSynchronize", ""); }

// A device's memory is the host's; wrong sizes are for AddressSanitizer and Valgrind to find.
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  *address = (uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
  return Note("cuMemAlloc", " %zu", bytes);
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  memcpy((void*)to, from, bytes);
  return Note("cuMemcpyHtoD", " %zu", bytes);
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  memcpy(to, (const void*)from, bytes);
  return Note("cuMemcpyDtoH", " %zu", bytes);
}

// The length of an image is in it: a shared object's table of sections is its end.
static void* Open(const char* image) {
  uint64_t sections;
  uint16_t size, count;
  char path[32];
  memcpy(&sections, image + 40, sizeof sections);
  memcpy(&size, image + 58, sizeof size);
  memcpy(&count, image + 60, sizeof count);
  const size_t length = sections + (size_t)size * count;
  const int file = memfd_create("module", 0);
  if (write(file, image, length) != (ssize_t)length) return NULL;
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  return dlopen(path, RTLD_NOW);
}

int cuModuleLoadData(uintptr_t* module, const char* image) {
  *module = 7;
  if (memcmp(image, "\x7f" "ELF", 4) == 0) {
    *module = (uintptr_t)Open(image);
    return *module == 0 ? 200 : Note("cuModuleLoadData", " in %d", depth > 0 ? (int)stack[depth - 1] : 0);
  }
  return Note("cuModuleLoadData", " %s in %d", image, depth > 0 ? (int)stack[depth - 1] : 0);
}
int cuModuleGetFunction(uintptr_t* function, uintptr_t module, const char* name) {
  if (module != 7) {
    fake_kernel(name, 0);
    *(void**)&kernels[kernel_count - 1].run = dlsym((void*)module, name);
    if (kernels[kernel_count - 1].run == NULL) return 500;  // CUDA_ERROR_NOT_FOUND
  }
  for (int i = 0; i < kernel_count; ++i) {
    if (strcmp(kernels[i].name, name) == 0) *function = i + 1;
  }
  return Note("cuModuleGetFunction", " %s", name);
}
int cuFuncSetAttribute(uintptr_t function, int attribute, int value) {
  return Note("cuFuncSetAttribute", " %s %d=%d", kernels[function - 1].name, attribute, value);
}
int cuFuncLoad(uintptr_t function) { return Note("cuFuncLoad", " %s", kernels[function - 1].name); }
struct Config {
  unsigned grid[3], block[3], shared;
  uintptr_t stream;
  void* attributes;
  unsigned attribute_count;
};
int cuLaunchKernelEx(const struct Config* config, uintptr_t function, uint64_t** arguments,
                     void** extra) {
  const unsigned *g = config->grid, *b = config->block;
  char values[256] = "";
  if (depth == 0) return 201;  // CUDA_ERROR_INVALID_CONTEXT
  for (int i = 0; i < kernels[function - 1].arguments; ++i) {
    size_t used = strlen(values);
    snprintf(values + used, sizeof values - used, " %llx", (unsigned long long)*arguments[i]);
  }
  return Note("cuLaunchKernelEx", " %s <%u %u %u, %u %u %u, %u> on %d in %d:%s%s",
              kernels[function - 1].name, g[0], g[1], g[2], b[0], b[1], b[2], config->shared,
              (int)config->stream, depth > 0 ? (int)stack[depth - 1] : 0, values,
              extra || config->attribute_count > 0 ? " extra" : "");
}
int cuLaunchKernel(uintptr_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, uintptr_t stream, void** arguments, void** extra) {
  if (depth == 0) return 201;
  if (kernels[function - 1].run != NULL) kernels[function - 1].run(arguments);
  return Note("cuLaunchKernel", " %s <%u %u %u, %u %u %u, %u> on %d%s", kernels[function - 1].name, gx, gy, gz, bx, by,
              bz, shared, (int)stream, extra ? " extra" : "");
}
// Of the map it writes the address.
int cuTensorMapEncodeTiled(uint64_t* map, int type, unsigned rank, void* address, const uint64_t* shape,
                           const uint64_t* strides, const unsigned* box, const unsigned* steps,
                           int interleave, int swizzle, int promotion, int fill) {
  *map = (uintptr_t)address;
  return Note("cuTensorMapEncodeTiled",
              " %d %u %llx %llux%llu by %llu, %ux%u of %ux%u, %d %d %d %d, %d", type, rank,
              (unsigned long long)(uintptr_t)address, (unsigned long long)shape[0],
              (unsigned long long)shape[1], (unsigned long long)strides[0], box[0], box[1], steps[0],
              steps[1], interleave, swizzle, promotion, fill, (int)((uintptr_t)map % 64));
}
int cuGetErrorName(int code, const char** name) {
  *name = code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : 0;
  return *name ? 0 : 1;
}
