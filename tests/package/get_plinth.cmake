# Three ways to add plinth to a CMake project, selected by PLINTH_BY. All define the same targets.
set(PLINTH_BY "find_package" CACHE STRING "find_package, add_subdirectory or FetchContent")
set(PLINTH_SOURCE "" CACHE PATH "plinth's sources, for add_subdirectory and FetchContent")
set(PLINTH_WANTED "" CACHE STRING "The requested version, for find_package")

if(PLINTH_BY STREQUAL "find_package")
  find_package(plinth ${PLINTH_WANTED} REQUIRED CONFIG)
elseif(PLINTH_BY STREQUAL "add_subdirectory")
  add_subdirectory("${PLINTH_SOURCE}" plinth)
else()
  include(FetchContent)
  FetchContent_Declare(plinth SOURCE_DIR "${PLINTH_SOURCE}")
  FetchContent_MakeAvailable(plinth)
endif()

# Adds a program for each library, shared and static.
function(add_consumers source)
  foreach(kind plinth static)
    add_executable(with_${kind} "${source}")
    target_link_libraries(with_${kind} PRIVATE plinth::${kind})
    add_test(NAME with_${kind} COMMAND with_${kind})
  endforeach()
endfunction()
