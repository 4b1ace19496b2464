target_sources(lorry_kernels PRIVATE cpu/quantize/quantize.cpp)
lorry_simd(kernels SOURCES cpu/quantize/code_runs.cpp SUFFIX _quantize)
# The compiler does not take both sides of a choice between floats, unless nobody reads the exception flags.
set_source_files_properties(cpu/quantize/code_runs.cpp PROPERTIES COMPILE_OPTIONS "-fno-trapping-math")
lorry_cuda(kernels cuda/quantize/quantize.cu)
