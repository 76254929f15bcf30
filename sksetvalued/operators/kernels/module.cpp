// Python's way to the kernels: addresses and sizes, which the callers have checked.

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <cstring>
#include <new>

#include "kernels.hpp"

namespace {

const Kernels* kernels = available_kernels()[0];

template <class T>
T* at(unsigned long long address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
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
  unsigned long long scores, indices, normals, seed;
  Py_ssize_t n_rows, n_classes, k, n_draws;
  float epsilon;
  int all_k;
  if (!PyArg_ParseTuple(args, "KnnnnfKpKK", &scores, &n_rows, &n_classes, &k, &n_draws, &epsilon,
                        &seed, &all_k, &indices, &normals))
    return nullptr;
  const SelectArguments arguments = {
      at<const float>(scores), n_rows,     n_classes,           k, n_draws, epsilon, seed,
      all_k != 0,              at<int64_t>(indices), at<float>(normals)};
  if (!unlocked([&] { kernels->select_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* largest_rows(PyObject*, PyObject* args) {
  unsigned long long scores, values, indices;
  Py_ssize_t n_rows, n_classes, k;
  if (!PyArg_ParseTuple(args, "KnnnKK", &scores, &n_rows, &n_classes, &k, &values, &indices))
    return nullptr;
  const LargestArguments arguments = {
      at<const float>(scores), n_rows, n_classes, k, at<float>(values), at<int64_t>(indices)};
  if (!unlocked([&] { kernels->largest_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* hinge_rows(PyObject*, PyObject* args) {
  unsigned long long scores, target, margins, ranks, weights, seed, losses, slopes, indices;
  Py_ssize_t n_ranks, n_rows, n_classes, n_draws;
  float epsilon, scale, margin;
  if (!PyArg_ParseTuple(args, "KKKKKnnnnfffKKKK", &scores, &target, &margins, &ranks, &weights,
                        &n_ranks, &n_rows, &n_classes, &n_draws, &epsilon, &scale, &margin, &seed,
                        &losses, &slopes, &indices))
    return nullptr;
  const HingeArguments arguments = {
      at<const float>(scores),  at<const int64_t>(target), at<const float>(margins),
      at<const int64_t>(ranks), at<const double>(weights), n_ranks,
      n_rows,                   n_classes,                 n_draws,
      epsilon,                  scale,                     margin,
      seed,                     at<float>(losses),         at<float>(slopes),
      at<int64_t>(indices)};
  int64_t n_bad = 0;
  if (!unlocked([&] { n_bad = kernels->hinge_rows(arguments); })) return nullptr;
  return PyLong_FromLongLong(n_bad);
}

PyObject* hinge_gradient_rows(PyObject*, PyObject* args) {
  unsigned long long grad, slopes, indices, result;
  Py_ssize_t grad_stride, n_rows, n_classes, n_draws, n_ranks;
  if (!PyArg_ParseTuple(args, "KnKKnnnnK", &grad, &grad_stride, &slopes, &indices, &n_rows,
                        &n_classes, &n_draws, &n_ranks, &result))
    return nullptr;
  const HingeGradientArguments arguments = {
      at<const float>(grad), at<const float>(slopes), at<const int64_t>(indices),
      grad_stride,           n_rows,                  n_classes,
      n_draws,               n_ranks,                 at<float>(result)};
  if (!unlocked([&] { kernels->hinge_gradient_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* smoothed_width(PyObject*, PyObject* args) {
  Py_ssize_t n_classes, k;
  if (!PyArg_ParseTuple(args, "nn", &n_classes, &k)) return nullptr;
  return PyLong_FromLongLong(kernels->smoothed_width(n_classes, k));
}

PyObject* smoothed_rows(PyObject*, PyObject* args) {
  unsigned long long scores, target, losses, saved;
  Py_ssize_t n_rows, n_classes, k;
  double tau, margin;
  if (!PyArg_ParseTuple(args, "KKnnnddKK", &scores, &target, &n_rows, &n_classes, &k, &tau,
                        &margin, &losses, &saved))
    return nullptr;
  const SmoothedArguments arguments = {
      at<const float>(scores), at<const int64_t>(target), n_rows,           n_classes, k, tau,
      margin,                  at<float>(losses),         at<float>(saved)};
  int64_t n_bad = 0;
  if (!unlocked([&] { n_bad = kernels->smoothed_rows(arguments); })) return nullptr;
  return PyLong_FromLongLong(n_bad);
}

PyObject* smoothed_gradient_rows(PyObject*, PyObject* args) {
  unsigned long long grad, scores, target, saved, result;
  Py_ssize_t grad_stride, n_rows, n_classes, k;
  double tau;
  if (!PyArg_ParseTuple(args, "KnKKKnnndK", &grad, &grad_stride, &scores, &target, &saved,
                        &n_rows, &n_classes, &k, &tau, &result))
    return nullptr;
  const SmoothedGradientArguments arguments = {
      at<const float>(grad),  at<const float>(scores), at<const int64_t>(target),
      at<float>(saved),       grad_stride,             n_rows,
      n_classes,              k,                       tau,
      at<float>(result)};
  if (!unlocked([&] { kernels->smoothed_gradient_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* project_rows(PyObject*, PyObject* args) {
  unsigned long long scores, sizes, result, places;
  double size;
  Py_ssize_t n_rows, n_classes, capacity;
  if (!PyArg_ParseTuple(args, "KKdnnKKn", &scores, &sizes, &size, &n_rows, &n_classes, &result,
                        &places, &capacity))
    return nullptr;
  const ProjectArguments arguments = {
      at<const float>(scores), at<const double>(sizes), size,      n_rows, n_classes, capacity,
      at<float>(result),       at<int64_t>(places)};
  int64_t n_places = 0;
  if (!unlocked([&] { n_places = kernels->project_rows(arguments); })) return nullptr;
  return PyLong_FromLongLong(n_places);
}

PyObject* project_gradient_rows(PyObject*, PyObject* args) {
  unsigned long long grad, q, places, result;
  Py_ssize_t row_stride, class_stride, n_rows, n_classes, n_places;
  if (!PyArg_ParseTuple(args, "KnnKKnnnK", &grad, &row_stride, &class_stride, &q, &places,
                        &n_places, &n_rows, &n_classes, &result))
    return nullptr;
  const ProjectGradientArguments arguments = {
      at<const float>(grad), at<const float>(q), at<const int64_t>(places),
      row_stride,            class_stride,       n_rows,
      n_classes,             n_places,           at<float>(result)};
  if (!unlocked([&] { kernels->project_gradient_rows(arguments); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* fenchel_young_rows(PyObject*, PyObject* args) {
  unsigned long long scores, points, classes, losses, places, values, grad, gradient;
  Py_ssize_t n_rows, n_classes, capacity, grad_stride;
  int shared;
  if (!PyArg_ParseTuple(args, "KKKpnnKKKnKnK", &scores, &points, &classes, &shared, &n_rows,
                        &n_classes, &losses, &places, &values, &capacity, &grad, &grad_stride,
                        &gradient))
    return nullptr;
  const FenchelYoungArguments arguments = {
      at<const float>(scores), at<const float>(points), at<const int64_t>(classes),
      shared != 0,             n_rows,                  n_classes,
      capacity,                at<float>(losses),       at<int64_t>(places),
      at<float>(values),       at<const float>(grad),   grad_stride,
      at<float>(gradient)};
  int64_t n_places = 0;
  if (!unlocked([&] { n_places = kernels->fenchel_young_rows(arguments); })) return nullptr;
  return PyLong_FromLongLong(n_places);
}

PyObject* spread_rows(PyObject*, PyObject* args) {
  unsigned long long grad, places, values, result;
  Py_ssize_t grad_stride, n_rows, n_classes, n_places;
  if (!PyArg_ParseTuple(args, "KnKKnnnK", &grad, &grad_stride, &places, &values, &n_places,
                        &n_rows, &n_classes, &result))
    return nullptr;
  const SpreadArguments arguments = {
      at<const float>(grad), at<const float>(values), at<const int64_t>(places), grad_stride,
      n_rows,                n_classes,               n_places,                  at<float>(result)};
  if (!unlocked([&] { kernels->spread_rows(arguments); })) return nullptr;
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
