# Install and export, so that find_package(lorry) gives lorry::lorry and one target a room.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(LORRY_CONFIG_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/lorry")

get_property(libraries GLOBAL PROPERTY LORRY_LIBRARIES)
install(TARGETS lorry_lorry ${libraries} EXPORT lorryTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET lorry_command)
  set_target_properties(lorry_command PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS lorry_command RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(EXPORT lorryTargets NAMESPACE lorry:: DESTINATION "${LORRY_CONFIG_DIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/lorry" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "bench" EXCLUDE PATTERN "cli" EXCLUDE)

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/lorryConfig.cmake.in" "${PROJECT_BINARY_DIR}/lorryConfig.cmake"
                              INSTALL_DESTINATION "${LORRY_CONFIG_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lorryConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lorryConfig.cmake" "${PROJECT_BINARY_DIR}/lorryConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/FindLibdw.cmake" "${CMAKE_CURRENT_LIST_DIR}/FindOneDNN.cmake"
              DESTINATION "${LORRY_CONFIG_DIR}")
