# cmake -DROOT=... -DOUT=file.cpp -DHEADERS=a,b,... -DSTANDARD=dir -P embed_headers.cmake
# Writes a source that holds headers by the names by which they are included, for kernels that are compiled at run time:
# HEADERS are paths under ROOT; those of the folder STANDARD stand in for the standard library. EMBEDDED_HASH names
# their contents.
string(REPLACE "," ";" headers "${HEADERS}")
set(entries "")
set(all "")
foreach(header ${headers})
  file(READ "${ROOT}/${header}" text)
  string(REPLACE "${STANDARD}/" "" name "${header}")
  string(APPEND entries "    {\"${name}\", R\"lorry_text(${text})lorry_text\"},\n")
  string(APPEND all "${name}\n${text}")
endforeach()
string(SHA256 hash "${all}")
file(WRITE "${OUT}" "// Made by cmake/embed_headers.cmake.\n#include \"lorry/kernels/cuda/fused/embedded.h\"\n\n"
  "namespace lorry::kernels::cuda {\n\n"
  "const std::vector<Header>& embedded_headers() {\n  static const std::vector<Header> kHeaders = {\n${entries}  };\n"
  "  return kHeaders;\n}\n\nconst char* embedded_hash() { return \"${hash}\"; }\n\n"
  "}  // namespace lorry::kernels::cuda\n")
