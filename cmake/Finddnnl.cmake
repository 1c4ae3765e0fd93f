# oneDNN, by header and library alone. Its own CMake package is not asked: Debian's demands OpenCL's
# headers, which nothing here uses. Defines the target DNNL::dnnl. Hints: dnnl_ROOT, DNNLROOT.
find_path(dnnl_INCLUDE_DIR dnnl.h HINTS ENV DNNLROOT PATH_SUFFIXES include)
find_library(dnnl_LIBRARY dnnl HINTS ENV DNNLROOT PATH_SUFFIXES lib lib64)
mark_as_advanced(dnnl_INCLUDE_DIR dnnl_LIBRARY)

if(dnnl_INCLUDE_DIR)
    file(STRINGS ${dnnl_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_version_lines
        REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
    string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]*([0-9]+)[^0-9]*([0-9]+).*" "\\1.\\2.\\3"
        dnnl_VERSION "${dnnl_version_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(dnnl
    REQUIRED_VARS dnnl_LIBRARY dnnl_INCLUDE_DIR VERSION_VAR dnnl_VERSION)

if(dnnl_FOUND AND NOT TARGET DNNL::dnnl)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${dnnl_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${dnnl_INCLUDE_DIR}")
endif()
