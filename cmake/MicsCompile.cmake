# The interface target `mics_compile` carries the language level, warnings and sanitizers of all our code.
add_library(mics_compile INTERFACE)
target_compile_features(mics_compile INTERFACE c_std_11)
target_compile_definitions(mics_compile INTERFACE _GNU_SOURCE)
target_compile_options(mics_compile INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    $<$<BOOL:${MICS_WERROR}>:-Werror>)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()
if(MICS_SANITIZE)
    # Lines of what is found; whole types take longer to compile than to read.
    target_compile_options(mics_compile INTERFACE -fsanitize=${MICS_SANITIZE} -fno-omit-frame-pointer -g1)
    target_link_options(mics_compile INTERFACE -fsanitize=${MICS_SANITIZE})
endif()
if(MICS_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS C)
    target_link_libraries(mics_compile INTERFACE OpenMP::OpenMP_C)
else()
    target_compile_options(mics_compile INTERFACE -fopenmp-simd -Wno-unknown-pragmas)
endif()
