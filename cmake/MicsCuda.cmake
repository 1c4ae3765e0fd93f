# The plugin for GPUs, libmics_cuda.so, opened at run time. Modules name their part of it with mics_cuda_sources;
# tests/cuda compiles the same files for the CPU, so that they are run on machines without a GPU too.
set(MICS_CUDA AUTO CACHE STRING "Build the CUDA plugin: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE MICS_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MICS_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "What the plugin's kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES")

# mics_cuda_sources(FILE...): files of the calling folder (.c and .cu) that belong to the plugin.
function(mics_cuda_sources)
    foreach(file IN LISTS ARGN)
        set_property(GLOBAL APPEND PROPERTY MICS_CUDA_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    endforeach()
endfunction()

# mics_cuda_libraries(NAME...): libraries of the toolkit, or of the system, that the plugin is linked with.
function(mics_cuda_libraries)
    set_property(GLOBAL APPEND PROPERTY MICS_CUDA_LIBRARIES ${ARGN})
endfunction()

# A plugin serves the build whose headers it was compiled with: version, and a number made of the headers that both sides share.
set(abi_text "")
foreach(header include/mics/core/device include/mics/core/dtype include/mics/op include/mics/core/optimizer src/ops/kernels
        include/mics/core/comm include/mics/core/mesh include/mics/memory include/mics/log include/mics/status)
    set(path ${PROJECT_SOURCE_DIR}/${header}.h)
    file(READ ${path} text)
    # What stands in comments makes no difference.
    string(REGEX REPLACE "/[*]([^*]|[*]+[^*/])*[*]+/|//[^\n]*" "" text "${text}")
    string(REGEX REPLACE "[ \n]+" " " text "${text}")
    string(APPEND abi_text "${text}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
endforeach()
string(SHA256 abi "${abi_text}")
string(SUBSTRING ${abi} 0 8 abi)
set(MICS_PLUGIN_BUILD "${PROJECT_VERSION}-${abi}")

# mics_opens_plugin(TARGET): a program that is linked with mics_static. A plugin finds libmics's functions in who opens it, so all
# of them have to be there, also those that the program itself does not call.
function(mics_opens_plugin target)
    set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON)
    target_link_options(${target} PRIVATE LINKER:--whole-archive $<TARGET_FILE:mics_static> LINKER:--no-whole-archive)
endfunction()

# mics_plugin(TARGET): what the real plugin and the emulated one have in common.
function(mics_plugin target)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE MICS_PLUGIN_BUILD="${MICS_PLUGIN_BUILD}")
    target_link_libraries(${target} PRIVATE Threads::Threads)
    # Functions of libmics are found in who opens the plugin; its own must not be taken from there.
    target_link_options(${target} PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/plugin.map
        LINKER:-Bsymbolic)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
        LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/plugin.map)
endfunction()

# Sanitizers see host code alone, and a GPU's runtime library does not go with them: then only the emulated plugin is built.
set(MICS_CUDA_BUILD OFF)
if(MICS_CUDA STREQUAL "ON" OR (MICS_CUDA STREQUAL "AUTO" AND NOT MICS_SANITIZE))
    # A toolkit's usual prefix is often not in PATH.
    if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
        file(GLOB prefixes /usr/local/cuda-*/bin)
        list(SORT prefixes COMPARE NATURAL ORDER DESCENDING)
        find_program(MICS_NVCC nvcc PATHS /usr/local/cuda/bin ${prefixes})
        mark_as_advanced(MICS_NVCC)
        if(MICS_NVCC)
            set(ENV{CUDACXX} ${MICS_NVCC})
        endif()
    endif()
    include(CheckLanguage)
    set(CMAKE_CUDA_ARCHITECTURES ${MICS_CUDA_ARCHITECTURES})
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        enable_language(CUDA)
        find_package(CUDAToolkit REQUIRED)
        set(MICS_CUDA_BUILD ON)
    elseif(MICS_CUDA STREQUAL "ON")
        message(FATAL_ERROR "MICS_CUDA is ON, but no working nvcc is in PATH or below /usr/local/cuda; install the CUDA "
            "toolkit, set CUDACXX to its nvcc, or configure with -DMICS_CUDA=AUTO")
    endif()
endif()

# Called when all modules have named their files.
function(mics_cuda_plugin)
    get_property(sources GLOBAL PROPERTY MICS_CUDA_SOURCES)
    get_property(libraries GLOBAL PROPERTY MICS_CUDA_LIBRARIES)
    if(NOT MICS_CUDA_BUILD OR NOT sources)
        return()
    endif()
    add_library(mics_cuda MODULE ${sources})
    mics_plugin(mics_cuda)
    # The driver is opened by the runtime library, which is linked in: without a driver there is an error to report.
    target_link_libraries(mics_cuda PRIVATE CUDA::cudart_static dl ${libraries})
    target_include_directories(mics_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    target_link_directories(mics_cuda PRIVATE ${CUDAToolkit_LIBRARY_DIR})
    target_compile_features(mics_cuda PRIVATE c_std_11 cuda_std_17)
    target_compile_options(mics_cuda PRIVATE
        $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow;-Wstrict-prototypes;-Wmissing-prototypes>
        $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
        $<$<AND:$<BOOL:${MICS_WERROR}>,$<COMPILE_LANGUAGE:C>>:-Werror>
        $<$<AND:$<BOOL:${MICS_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:-Werror=all-warnings>)
    set_target_properties(mics_cuda PROPERTIES PREFIX lib LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
        CUDA_ARCHITECTURES "${MICS_CUDA_ARCHITECTURES}")
endfunction()
