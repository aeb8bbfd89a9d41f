# What `cmake --install` and the Debian package have beside the program, and the package itself:
#
#   cmake --preset release && cmake --build --preset release
#   (cd build/release && cpack)            makes heddle_VERSION_ARCHITECTURE.deb
set(deploy ${PROJECT_SOURCE_DIR}/deploy)
file(GLOB units CONFIGURE_DEPENDS ${deploy}/*.service ${deploy}/*.timer)
install(FILES ${units} DESTINATION lib/systemd/system)
install(FILES ${deploy}/heddle.sysusers.conf DESTINATION lib/sysusers.d RENAME heddle.conf)
install(FILES ${deploy}/heddle.tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME heddle.conf)
install(FILES ${deploy}/heddle-alerts.yml ${deploy}/heddle-dashboard.json DESTINATION share/heddle)
# Sites copy and edit these (docs/cluster.md).
install(DIRECTORY ${deploy}/slurm ${deploy}/kubernetes DESTINATION share/heddle)
install(FILES LICENSE DESTINATION share/doc/heddle RENAME copyright)
install(FILES README.md CHANGELOG.md DESTINATION share/doc/heddle)
install(DIRECTORY docs DESTINATION share/doc/heddle)

# The manual page and the shells' completions, from the program's own table of commands and flags.
function(heddle_install_manual what folder name)
  set(file ${PROJECT_BINARY_DIR}/manual/${name}.${what})
  install(CODE "
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/manual)
    execute_process(COMMAND $<TARGET_FILE:heddle> manual ${what} OUTPUT_FILE ${file} COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${file} DESTINATION ${folder} RENAME ${name})
endfunction()
heddle_install_manual(man share/man/man1 heddle.1)
heddle_install_manual(bash share/bash-completion/completions heddle)
heddle_install_manual(zsh share/zsh/vendor-completions _heddle)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "Heddle developers <heddle@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "automatic schedule tuner for GPU kernels")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "pocl-opencl-icd | opencl-icd")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${deploy}/debian/postinst ${deploy}/debian/prerm)
include(CPack)
