"""The compiled heart, which is optional: without a compiler, pure Python runs. All else is in setup.cfg."""

from setuptools import Extension, setup

HEART = Extension(
    "airflow_mirror.wire._heart",
    ["airflow_mirror/wire/_heart.pyx"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],  # one wheel for Python 3.11 and every later one
    py_limited_api=True,
    extra_compile_args=["-g0"],  # half a megabyte of symbols would go to every executor
    optional=True,
)
setup(ext_modules=[HEART], options={"bdist_wheel": {"py_limited_api": "cp311"}})
