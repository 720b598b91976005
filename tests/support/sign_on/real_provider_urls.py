"""The addresses of the real provider's process."""

from django.urls import include, path

urlpatterns = [
    path("", include("allauth.idp.urls")),
    path("accounts/", include("allauth.account.urls")),
]
