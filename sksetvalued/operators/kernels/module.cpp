// Python's way to the kernels: tensors and sizes, which the callers have checked.

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#include <cstring>
#include <new>
#include <vector>

#include "kernels.hpp"

namespace {

const Kernels* kernels = available_kernels()[0];

// Where a tensor keeps its numbers; nowhere for None.
struct Address {
  void* value;

  template <class T>
  operator T*() const {
    return static_cast<T*>(value);
  }
};

int find(PyObject* tensor, void* address) {
  static PyObject* const data_ptr = PyUnicode_InternFromString("data_ptr");
  void*& found = static_cast<Address*>(address)->value;
  found = nullptr;
  if (tensor == Py_None) return 1;
  PyObject* number = PyObject_CallMethodObjArgs(tensor, data_ptr, nullptr);
  if (!number) return 0;
  found = PyLong_AsVoidPtr(number);
  Py_DECREF(number);
  return !PyErr_Occurred();
}

// The scores that hinges are on, by their ranks, and the weights of the hinges.
struct Ranks {
  std::vector<int64_t> places;
  std::vector<double> weights;
};

// Read pairs of the rank of a hinge, which is on the score after it, and its weight.
int read_ranks(PyObject* pairs, void* address) try {
  Ranks& ranks = *static_cast<Ranks*>(address);
  const Py_ssize_t n = PyTuple_Size(pairs);
  for (Py_ssize_t i = 0; i < n; ++i) {
    Py_ssize_t rank;
    double weight;
    if (!PyArg_ParseTuple(PyTuple_GetItem(pairs, i), "nd", &rank, &weight)) return 0;
    ranks.places.push_back(rank + 1);
    ranks.weights.push_back(weight);
  }
  return n >= 0;
} catch (const std::bad_alloc&) {
  PyErr_NoMemory();
  return 0;
}

// Call `work` without the interpreter's lock; return whether it had memory enough.
template <class Work>
bool unlocked(Work work) {
  bool done = true;
  Py_BEGIN_ALLOW_THREADS;
  try {
    work();
  } catch (const std::bad_alloc&) {
    done = false;
  }
  Py_END_ALLOW_THREADS;
  if (!done) PyErr_NoMemory();
  return done;
}

PyObject* select_rows(PyObject*, PyObject* args) {
  Address scores, indices, normals;
  unsigned long long seed;
  Py_ssize_t n_rows, n_classes, k, n_draws;
  float epsilon;
  int all_k;
  if (!PyArg_ParseTuple(args, "O&nnnnfKpO&O&", find, &scores, &n_rows, &n_classes, &k, &n_draws,
                        &epsilon, &seed, &all_k, find, &indices, find, &normals))
    return nullptr;
  const SelectArguments arguments = {
      scores, n_rows, n_classes, k, n_draws, epsilon, seed, all_k != 0, indices, normals};
  if (!unlocked([&] { kernels->select_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* largest_rows(PyObject*, PyObject* args) {
  Address scores, values, indices;
  Py_ssize_t n_rows, n_classes, k;
  if (!PyArg_ParseTuple(args, "O&nnnO&O&", find, &scores, &n_rows, &n_classes, &k, find, &values,
                        find, &indices))
    return nullptr;
  const LargestArguments arguments = {scores, n_rows, n_classes, k, values, indices};
  if (!unlocked([&] { kernels->largest_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* hinge_rows(PyObject*, PyObject* args) {
  Address scores, target, margins, losses, slopes, indices;
  Ranks ranks;
  unsigned long long seed;
  Py_ssize_t n_rows, n_classes, n_draws;
  float epsilon, scale, margin;
  if (!PyArg_ParseTuple(args, "O&O&O&O&nnnfffKO&O&O&", find, &scores, find, &target, find,
                        &margins, read_ranks, &ranks, &n_rows, &n_classes, &n_draws, &epsilon,
                        &scale, &margin, &seed, find, &losses, find, &slopes, find, &indices))
    return nullptr;
  const HingeArguments arguments = {
      scores, target, margins, ranks.places.data(), ranks.weights.data(),
      static_cast<int64_t>(ranks.places.size()), n_rows, n_classes, n_draws, epsilon, scale,
      margin, seed, losses, slopes, indices};
  int64_t n_bad = 0;
  if (!unlocked([&] { n_bad = kernels->hinge_rows(arguments); })) return nullptr;
  return PyLong_FromLongLong(n_bad);
}

PyObject* hinge_gradient_rows(PyObject*, PyObject* args) {
  Address grad, slopes, indices, result;
  Py_ssize_t grad_stride, n_rows, n_classes, n_draws, n_ranks;
  if (!PyArg_ParseTuple(args, "O&nO&O&nnnnO&", find, &grad, &grad_stride, find, &slopes,
                        find, &indices, &n_rows, &n_classes, &n_draws, &n_ranks, find, &result))
    return nullptr;
  const HingeGradientArguments arguments = {
      grad, slopes, indices, grad_stride, n_rows, n_classes, n_draws, n_ranks, result};
  if (!unlocked([&] { kernels->hinge_gradient_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* smoothed_width(PyObject*, PyObject* args) {
  Py_ssize_t n_classes, k;
  if (!PyArg_ParseTuple(args, "nn", &n_classes, &k)) return nullptr;
  return PyLong_FromLongLong(kernels->smoothed_width(n_classes, k));
}

PyObject* smoothed_rows(PyObject*, PyObject* args) {
  Address scores, target, losses, saved;
  Py_ssize_t n_rows, n_classes, k;
  double tau, margin;
  if (!PyArg_ParseTuple(args, "O&O&nnnddO&O&", find, &scores, find, &target, &n_rows, &n_classes,
                        &k, &tau, &margin, find, &losses, find, &saved))
    return nullptr;
  const SmoothedArguments arguments = {
      scores, target, n_rows, n_classes, k, tau, margin, losses, saved};
  int64_t n_bad = 0;
  if (!unlocked([&] { n_bad = kernels->smoothed_rows(arguments); })) return nullptr;
  return PyLong_FromLongLong(n_bad);
}

PyObject* smoothed_gradient_rows(PyObject*, PyObject* args) {
  Address grad, scores, target, saved, result;
  Py_ssize_t grad_stride, n_rows, n_classes, k;
  double tau;
  if (!PyArg_ParseTuple(args, "O&nO&O&O&nnndO&", find, &grad, &grad_stride, find, &scores,
                        find, &target, find, &saved, &n_rows, &n_classes, &k, &tau, find, &result))
    return nullptr;
  const SmoothedGradientArguments arguments = {
      grad, scores, target, saved, grad_stride, n_rows, n_classes, k, tau, result};
  if (!unlocked([&] { kernels->smoothed_gradient_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* project_rows(PyObject*, PyObject* args) {
  Address scores, sizes, result, places;
  double size;
  Py_ssize_t n_rows, n_classes, capacity;
  if (!PyArg_ParseTuple(args, "O&O&dnnO&O&n", find, &scores, find, &sizes, &size, &n_rows,
                        &n_classes, find, &result, find, &places, &capacity))
    return nullptr;
  const ProjectArguments arguments = {
      scores, sizes, size, n_rows, n_classes, capacity, result, places};
  int64_t n_places = 0;
  if (!unlocked([&] { n_places = kernels->project_rows(arguments); })) return nullptr;
  return PyLong_FromLongLong(n_places);
}

PyObject* project_gradient_rows(PyObject*, PyObject* args) {
  Address grad, q, places, result;
  Py_ssize_t row_stride, class_stride, n_rows, n_classes, n_places;
  if (!PyArg_ParseTuple(args, "O&nnO&O&nnnO&", find, &grad, &row_stride, &class_stride, find, &q,
                        find, &places, &n_places, &n_rows, &n_classes, find, &result))
    return nullptr;
  const ProjectGradientArguments arguments = {
      grad, q, places, row_stride, class_stride, n_rows, n_classes, n_places, result};
  if (!unlocked([&] { kernels->project_gradient_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* fenchel_young_rows(PyObject*, PyObject* args) {
  Address scores, points, classes, losses, places, values, grad, gradient;
  Py_ssize_t n_rows, n_classes, capacity, grad_stride;
  int shared;
  if (!PyArg_ParseTuple(args, "O&O&O&pnnO&O&O&nO&nO&", find, &scores, find, &points,
                        find, &classes, &shared, &n_rows, &n_classes, find, &losses, find, &places,
                        find, &values, &capacity, find, &grad, &grad_stride, find, &gradient))
    return nullptr;
  const FenchelYoungArguments arguments = {
      scores, points, classes, shared != 0, n_rows, n_classes, capacity, losses, places, values,
      grad, grad_stride, gradient};
  int64_t n_places = 0;
  if (!unlocked([&] { n_places = kernels->fenchel_young_rows(arguments); })) return nullptr;
  return PyLong_FromLongLong(n_places);
}

PyObject* spread_rows(PyObject*, PyObject* args) {
  Address grad, places, values, result;
  Py_ssize_t grad_stride, n_rows, n_classes, n_places;
  if (!PyArg_ParseTuple(args, "O&nO&O&nnnO&", find, &grad, &grad_stride, find, &places,
                        find, &values, &n_places, &n_rows, &n_classes, find, &result))
    return nullptr;
  const SpreadArguments arguments = {
      grad, values, places, grad_stride, n_rows, n_classes, n_places, result};
  if (!unlocked([&] { kernels->spread_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* two_head_rows(PyObject*, PyObject* args) {
  Address scores, proposals, target, losses, slopes, proposal_slopes;
  Py_ssize_t n_rows, n_classes, n_candidates;
  float positive, negative;
  if (!PyArg_ParseTuple(args, "O&O&O&nnnffO&O&O&", find, &scores, find, &proposals, find, &target,
                        &n_rows, &n_classes, &n_candidates, &positive, &negative, find, &losses,
                        find, &slopes, find, &proposal_slopes))
    return nullptr;
  const TwoHeadArguments arguments = {scores, proposals, target, n_rows, n_classes, n_candidates,
                                      positive, negative, losses, slopes, proposal_slopes};
  int64_t n_bad = 0;
  if (!unlocked([&] { n_bad = kernels->two_head_rows(arguments); })) return nullptr;
  return PyLong_FromLongLong(n_bad);
}

PyObject* draw_mask(PyObject*, PyObject* args) {
  Address gate, mask;
  unsigned long long key;
  unsigned int n_dropped;
  Py_ssize_t n;
  float kept;
  if (!PyArg_ParseTuple(args, "KnIfO&O&", &key, &n, &n_dropped, &kept, find, &gate, find, &mask))
    return nullptr;
  const MaskArguments arguments = {key, n, n_dropped, kept, gate, mask};
  if (!unlocked([&] { kernels->draw_mask(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* instruction_sets(PyObject*, PyObject*) {
  PyObject* names = PyList_New(0);
  for (const Kernels* const* each = available_kernels(); names && *each; ++each) {
    PyObject* name = PyUnicode_FromString((*each)->name);
    if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
    Py_XDECREF(name);
  }
  return names;
}

PyObject* use_instruction_set(PyObject*, PyObject* args) {
  const char* name;
  if (!PyArg_ParseTuple(args, "s", &name)) return nullptr;
  for (const Kernels* const* each = available_kernels(); *each; ++each)
    if (std::strcmp((*each)->name, name) == 0) {
      kernels = *each;
      Py_RETURN_NONE;
    }
  PyErr_Format(PyExc_ValueError, "this processor has no instruction set '%s'", name);
  return nullptr;
}

PyMethodDef methods[] = {
    {"select_rows", select_rows, METH_VARARGS, nullptr},
    {"largest_rows", largest_rows, METH_VARARGS, nullptr},
    {"hinge_rows", hinge_rows, METH_VARARGS, nullptr},
    {"hinge_gradient_rows", hinge_gradient_rows, METH_VARARGS, nullptr},
    {"smoothed_width", smoothed_width, METH_VARARGS, nullptr},
    {"smoothed_rows", smoothed_rows, METH_VARARGS, nullptr},
    {"smoothed_gradient_rows", smoothed_gradient_rows, METH_VARARGS, nullptr},
    {"project_rows", project_rows, METH_VARARGS, nullptr},
    {"project_gradient_rows", project_gradient_rows, METH_VARARGS, nullptr},
    {"fenchel_young_rows", fenchel_young_rows, METH_VARARGS, nullptr},
    {"spread_rows", spread_rows, METH_VARARGS, nullptr},
    {"two_head_rows", two_head_rows, METH_VARARGS, nullptr},
    {"draw_mask", draw_mask, METH_VARARGS, nullptr},
    {"instruction_sets", instruction_sets, METH_NOARGS,
     "Return the instruction sets that this processor has, the one used at first in front."},
    {"use_instruction_set", use_instruction_set, METH_VARARGS,
     "Use another of the instruction sets from now on."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", nullptr, -1, methods,
                      nullptr,               nullptr,    nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernels(void) {
  PyObject* made = PyModule_Create(&module);
  if (made && (PyModule_AddStringConstant(made, "checksum", CHECKSUM) < 0 ||
               PyModule_AddIntConstant(made, "most_rank", kMostRank) < 0))
    Py_CLEAR(made);
  return made;
}
