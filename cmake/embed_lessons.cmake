# cmake -DROOT=... -DOUT=file.cpp -DFILES=a.cpp,b.cpp,... -P embed_lessons.cmake
# Writes a source that holds the texts of the lessons, from which `lorry lessons` cuts the code that it shows.
string(REPLACE "," ";" files "${FILES}")
set(entries "")
foreach(file ${files})
  file(READ "${ROOT}/${file}" text)
  string(APPEND entries "    {\"${file}\", R\"lorry_text(${text})lorry_text\"},\n")
endforeach()
file(WRITE "${OUT}" "// Made by cmake/embed_lessons.cmake.\n#include \"lorry/bench/lessons/embedded.h\"\n\n"
  "namespace lorry::bench::lessons {\nnamespace {\nconstexpr EmbeddedSource kEmbeddedLessons[] = {\n${entries}};\n"
  "}  // namespace\n\nstd::span<const EmbeddedSource> embedded_sources() { return kEmbeddedLessons; }\n\n"
  "}  // namespace lorry::bench::lessons\n")
