# The service accounts that the processes run as. They have no rights here: each module grants access to the resources
# it creates.

locals {
  accounts = {
    api     = "serves the HTTP API; publishes"
    worker  = "runs handlers; receives and publishes"
    migrate = "migrates the schema before a release"
    invoker = "Pub/Sub and Cloud Scheduler send its tokens; has no IAM roles"
    # `wakeq accounts allow` gives it access to the API; operators send its tokens.
    operator = "operates the queue over HTTP; has no IAM roles"
  }
}

resource "google_service_account" "this" {
  for_each = local.accounts

  project      = var.project
  account_id   = "${var.name}-${each.key}"
  display_name = "${var.name} ${each.key}"
  description  = each.value
}

# GKE: the Kubernetes service account of the same name may act as the Google one.
resource "google_service_account_iam_member" "workload" {
  for_each = var.kubernetes_namespace == null ? {} : { for name in ["api", "worker", "migrate"] : name => name }

  service_account_id = google_service_account.this[each.key].name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.project}.svc.id.goog[${var.kubernetes_namespace}/wakeq-${each.key}]"
}

resource "google_service_account_iam_member" "operator" {
  for_each = var.operators

  service_account_id = google_service_account.this["operator"].name
  role               = "roles/iam.serviceAccountOpenIdTokenCreator"
  member             = each.value
}
