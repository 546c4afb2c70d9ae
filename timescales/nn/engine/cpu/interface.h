// The C interface of loop.cpp and scan.cpp. They include it last, since it uses their Layout, forward and backward.

// Number of floats that forward (and backward, if p.keep) need as a workspace. No pointer in `p` is read.
extern "C" int64_t timescales_workspace(const Problem* p) {
    Problem q = *p;
    q.workspace = nullptr;
    return Layout(q).floats;
}
extern "C" void timescales_forward(const Problem* p) { forward(*p); }
// Overwrites what forward left in the workspace.
extern "C" void timescales_backward(const Problem* p) { backward(*p); }
