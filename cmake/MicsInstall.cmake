# What `cmake --install` and packages lay down: library, headers, program, mics.pc, CMake package, man page.
# The package files are written by hand: our own objects carry warnings and private libraries that a
# user of the library should not inherit, so no targets are exported.
include(CMakePackageConfigHelpers)

# Libraries that only a static link names. MPI and OpenMP are there if they were built in.
set(MICS_LIBS_PRIVATE "${dnnl_LIBRARY}")
if(MICS_MPI)
    find_package(MPI QUIET COMPONENTS C)
    foreach(library IN LISTS MPI_C_LIBRARIES)
        string(APPEND MICS_LIBS_PRIVATE " ${library}")
    endforeach()
endif()
if(MICS_OPENMP)
    string(APPEND MICS_LIBS_PRIVATE " ${OpenMP_C_FLAGS}")
endif()
string(APPEND MICS_LIBS_PRIVATE " -pthread -lm")
foreach(library IN LISTS CMAKE_DL_LIBS)
    string(APPEND MICS_LIBS_PRIVATE " -l${library}")
endforeach()

# Paths in mics.pc follow the prefix that the file is found in, so a moved tree still works.
file(RELATIVE_PATH MICS_PC_PREFIX
    ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/mics.pc.in ${CMAKE_BINARY_DIR}/mics.pc @ONLY)
set(MICS_STATIC_FILE
    ${CMAKE_STATIC_LIBRARY_PREFIX}mics${CMAKE_STATIC_LIBRARY_SUFFIX})
set(MICS_SHARED_FILE
    ${CMAKE_SHARED_LIBRARY_PREFIX}mics${CMAKE_SHARED_LIBRARY_SUFFIX}.${PROJECT_VERSION})
set(MICS_SONAME
    ${CMAKE_SHARED_LIBRARY_PREFIX}mics${CMAKE_SHARED_LIBRARY_SUFFIX}.${PROJECT_VERSION_MAJOR})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/micsConfig.cmake.in
    ${CMAKE_BINARY_DIR}/micsConfig.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/mics
    PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/micsConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)

install(TARGETS mics_static mics_shared
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mics DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/mics.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/micsConfig.cmake ${CMAKE_BINARY_DIR}/micsConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/mics)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET mics_cli)
    install(TARGETS mics_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/mics.1 DEPENDS mics_cli ${PROJECT_SOURCE_DIR}/tools/man.sh
        COMMAND sh ${PROJECT_SOURCE_DIR}/tools/man.sh $<TARGET_FILE:mics_cli> >${CMAKE_BINARY_DIR}/mics.1.new
        COMMAND ${CMAKE_COMMAND} -E rename ${CMAKE_BINARY_DIR}/mics.1.new ${CMAKE_BINARY_DIR}/mics.1)
    add_custom_target(mics_man ALL DEPENDS ${CMAKE_BINARY_DIR}/mics.1)
    install(FILES ${CMAKE_BINARY_DIR}/mics.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
# Beside the library, where it is looked for; if it was built.
if(TARGET mics_cuda)
    install(TARGETS mics_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
endif()

# RUNPATH. Nothing here needs one: the program holds libmics, and the plugin is opened by its path.
# What is built finds libraries of other prefixes through it. What is installed finds them as all
# programs of the system do, unless CMAKE_INSTALL_RPATH says where.
# A RUNPATH that CMake rewrites at installation ends with an empty element until then, which the
# loader takes for the current directory. So the linker writes the final one, and this machine's
# folders are cut out of what was installed.
#
# mics_runpath(TARGET DESTINATION LIBRARY...): the RUNPATH of a target that is installed in DESTINATION
# and was linked with these files, among others.
function(mics_runpath target destination)
    if(NOT TARGET ${target})
        return()
    endif()
    set(folders ${CMAKE_INSTALL_RPATH})
    if(NOT CMAKE_INSTALL_RPATH)
        foreach(library IN LISTS ARGN)
            if(NOT IS_ABSOLUTE "${library}")
                continue()
            endif()
            file(REAL_PATH "${library}" library)
            get_filename_component(folder "${library}" DIRECTORY)
            if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
                list(APPEND folders "${folder}")
            endif()
        endforeach()
        list(REMOVE_DUPLICATES folders)
    endif()
    set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${folders}")
    if(folders AND NOT CMAKE_INSTALL_RPATH AND NOT APPLE)
        install(CODE "
            get_filename_component(file \"${destination}/$<TARGET_FILE_NAME:${target}>\" ABSOLUTE
                BASE_DIR \"\${CMAKE_INSTALL_PREFIX}\")
            if(EXISTS \"\$ENV{DESTDIR}\${file}\")
                file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${file}\")
            endif()")
    endif()
endfunction()

set(libraries ${MPI_C_LIBRARIES} ${dnnl_LIBRARY} ${jansson_LINK_LIBRARIES}
    ${oniguruma_LINK_LIBRARIES} ${utf8proc_LINK_LIBRARIES} ${xxhash_LINK_LIBRARIES}
    ${snappy_LINK_LIBRARIES} ${yaml_LINK_LIBRARIES} ${zlib_LINK_LIBRARIES} ${zstd_LINK_LIBRARIES})
mics_runpath(mics_cli ${CMAKE_INSTALL_BINDIR} ${libraries})
mics_runpath(mics_shared ${CMAKE_INSTALL_LIBDIR} ${libraries})
mics_runpath(mics_cuda ${CMAKE_INSTALL_LIBDIR} ${CUDA_cublasLt_LIBRARY})

# What an installation needs, for `make install`. nvcc takes a minute, so the plugin is among it where it was asked for
# (MICS_CUDA is ON), or was built before and must not be of another day.
add_custom_target(mics_installed)
# And what `make` builds: no tests.
add_custom_target(mics_built)
add_dependencies(mics_built mics_installed)
if(TARGET mics_cuda)
    add_dependencies(mics_built mics_cuda)
endif()
add_dependencies(mics_installed mics_static mics_shared)
if(TARGET mics_cli)
    add_dependencies(mics_installed mics_cli mics_man)
endif()
if(TARGET mics_cuda AND (MICS_CUDA STREQUAL "ON" OR EXISTS ${CMAKE_BINARY_DIR}/libmics_cuda.so))
    add_dependencies(mics_installed mics_cuda)
endif()
