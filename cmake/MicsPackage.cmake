# What `cpack` packs: the installed files as a .tar.xz that runs wherever it is unpacked and, where
# Debian's tools are, as a .deb.
set(CPACK_PACKAGE_VENDOR "The mics authors")
set(CPACK_PACKAGE_CONTACT "The mics authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains transformers with MiCS sharding")
set(CPACK_PACKAGE_DESCRIPTION "A C library and a program that train transformers on clusters whose network between nodes is
much slower than the links inside one. Parameters are sharded over as few, as close ranks as
memory allows (MiCS, arXiv:2205.00119). Holds the program, the library, its headers, and the
plugin for NVIDIA GPUs if the build had it.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
string(TOLOWER "mics-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}"
    CPACK_PACKAGE_FILE_NAME)

# Folders that all may read, whatever the umask.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_GENERATOR TXZ)
# Without this tool a .deb would name no libraries that it needs.
find_program(MICS_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(MICS_SHLIBDEPS)
if(MICS_SHLIBDEPS)
    list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# The plugin's libraries, where no package owns the toolkit.
if(MICS_CUDA_BUILD)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CUDAToolkit_LIBRARY_DIR})
endif()

# By the name of Makefiles CPack would build all, tests and benchmarks too, before it packs; by this
# one it packs what is built.
set(CPACK_CMAKE_GENERATOR Ninja)
include(CPack)
