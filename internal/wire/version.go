package wire

// ProtocolVersion is the version of the messages in firnpb and of the manifest
// schema. Parts of different versions don't talk to each other.
const ProtocolVersion = 3
